"""Record routing: selects the tables of a record.

Rules of this file:
- Static tables without a route field: each record goes to every table.
- Static tables with a route field: a record goes to the tables whose regex matches the field's full
  text.
- Dynamic tables: the route field contains the table's name, which is converted to lower case.
- A record that names no possible table is unmatched. ``connect.records.table_names`` says which
  names are possible. Tables without a catalog are folders: names of one depth keep them apart.
- Topic map and name template: the topic's entry in the map names the table. Without an entry, the
  filled template names it. A template may contain the name of the value's schema.
- Tombstones have no table, which is not an error. If a connector applies row-level changes, a
  tombstone with a key goes to the tables that its topic, or the route field in its message key,
  names. A topic whose records are routed by a field may have rows of any table, with equal keys.
  Otherwise the router raises a RecordError of stage ROUTE and code ``tombstone_unroutable``.
- Any other record without a table is dropped only if the configuration says so. Otherwise the
  router raises a RecordError of stage ROUTE and code ``unmatched``. The caller handles it as
  ``ConnectorConfig.unmatched`` says, not as the error tolerance says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.java_compat.java_regex import compile_java_regex
from connect.model.records import SinkRecord, Struct
from connect.records.conversion.conversion_failure import kind_of
from connect.records.conversion.text import java_text
from connect.records.table_names import NameTemplate, name_error

UNMATCHED: Final = "unmatched"
TOMBSTONE_UNROUTABLE: Final = "tombstone_unroutable"
WITHOUT_TABLE: Final = frozenset({UNMATCHED, TOMBSTONE_UNROUTABLE})
"""Codes of records whose handling ``iceberg.tables.unmatched`` decides."""


class Router:
    """Selects the tables of records.

    Args:
        config: the connector's configuration.
        known_tables: existing tables, which count towards ``iceberg.tables.max-tables``.

    Raises:
        ConfigError: a table's route regex does not compile.
    """

    def __init__(self, config: ConnectorConfig, known_tables: frozenset[str] = frozenset()) -> None:
        self._config = config
        self._path = tuple(config.route_field.split(".")) if config.route_field else ()
        self._dynamic = config.dynamic_enabled
        self._tables = tuple(dict.fromkeys(config.tables))
        self._topic_tables = config.topic_tables
        self._template = (
            NameTemplate(config.name_template, config.topics_regex)
            if config.name_template
            else None
        )
        self._config = config
        self._granted = compile_java_regex(config.granted_tables) if config.granted_tables else None
        self._drop = config.unmatched == "drop"
        self._tables_max = config.max_tables
        self._seen = set(known_tables)
        self._regexes = tuple(
            (name, compile_java_regex(regex))
            for name in self._tables
            if (regex := config.table(name).route_regex) is not None
        )

    def route(self, record: SinkRecord) -> tuple[str, ...]:
        """Return the tables of a record. The result is empty for tombstones and dropped records.

        Raises:
            RecordError: stage ROUTE; code ``unmatched``, ``tombstone_unroutable``, ``route_field``
                (a value on the path has no fields) or ``too_many_tables``.
        """
        if record.value is None:
            is_delete = self._config.is_row_level and record.key is not None
            return self._route_tombstone(record) if is_delete else ()
        if self._dynamic:
            return self._route_dynamic(record.value)
        if self._topic_tables or self._template is not None:
            return self._route_named(record)
        if not self._path:
            return self._tables
        tables = self._matching(field_value(record.value, self._path))
        return tables or self._unmatched("no table's route regex matches the record")

    def table_of_topic(self, topic: str) -> str | None:
        """Return the only table of all records of a topic; None if there may be others.

        Args:
            topic: of the records after transformations.
        """
        if self._topic_tables or self._template is not None:
            name = None if self._dynamic else self._named(topic, lambda _: None, None)
            return None if name is None else self._config.qualified(name)
        is_static = not self._dynamic and not self._path and len(self._tables) == 1
        return self._tables[0] if is_static else None

    def _matching(self, value: Any) -> tuple[str, ...]:
        text = None if value is None else java_text(value)
        return tuple(
            name for name, regex in self._regexes if text is not None and regex.fullmatch(text)
        )

    def _route_tombstone(self, record: SinkRecord) -> tuple[str, ...]:
        """Return the tables of a tombstone, which need not exist."""
        name: str | None = None
        if self._topic_tables or self._template is not None:
            name = self._named(record.topic, partial(_key_field, record.key), None)
        elif not self._path:
            return self._tables
        else:
            value = _key_field(record.key, self._path)
            if not self._dynamic and (tables := self._matching(value)):
                return tables
            if self._dynamic and value is not None:
                name = java_text(value).lower()
        if name is not None:
            return self._table(name, "the tombstone does not name a valid table")
        return self._unmatched(
            "neither topic nor message key name the table of the tombstone: put the route field "
            "into the message key, or drop tombstones with a Filter transformation",
            TOMBSTONE_UNROUTABLE,
        )

    def _route_dynamic(self, record_value: Any) -> tuple[str, ...]:
        value = field_value(record_value, self._path)
        if value is None:
            return self._unmatched("the record has no value in the route field")
        return self._table(
            java_text(value).lower(), "the value of the route field is not a valid table name"
        )

    def _route_named(self, record: SinkRecord) -> tuple[str, ...]:
        schema = record.value_schema.name if record.value_schema is not None else None
        name = self._named(record.topic, partial(field_value, record.value), schema)
        if name is None:
            return self._unmatched(
                "neither topic map nor name template names a table for the record"
            )
        return self._table(name, "the filled name template is not a valid table name")

    def _named(
        self, topic: str, field: Callable[[tuple[str, ...]], Any], schema: str | None
    ) -> str | None:
        name = self._topic_tables.get(topic)
        if name is None and self._template is not None:
            name = self._template.name(topic, field, schema)
        return name

    def _table(self, name: str, complaint: str) -> tuple[str, ...]:
        """Return the table that a record names if the connector may write to it."""
        name = self._config.qualified(name)
        if name not in self._seen:
            if (why := name_error(name) or self._depth_error(name)) is not None:
                return self._unmatched(f"{complaint}: {why}")
            if self._granted is not None and not self._granted.fullmatch(name):
                raise RecordError(
                    "the record names a table that the connector may not write",
                    stage="ROUTE",
                    code="not_granted",
                )
            if len(self._seen) >= self._config.max_tables:
                raise RecordError(
                    f"the connector writes more than {self._config.max_tables} tables "
                    "(iceberg.tables.max-tables)",
                    stage="ROUTE",
                    code="too_many_tables",
                )
            self._seen.add(name)
        return (name,)

    def _depth_error(self, name: str) -> str | None:
        """Return why a table without a catalog could lie in the folder of another one."""
        if not self._dynamic or self._config.is_iceberg:
            return None
        levels = 2 + (self._config.default_namespace or "").count(".")
        return None if name.count(".") + 1 == levels else f"it does not have {levels} levels"

    def _unmatched(self, message: str, code: str = UNMATCHED) -> tuple[str, ...]:
        if self._drop:
            return ()
        raise RecordError(message, stage="ROUTE", code=code)


def _key_field(key: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of a message key; None if the key has no such field."""
    try:
        return field_value(key, path)
    except RecordError:
        return None


def field_value(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of field names in a dict or Struct, or None if a field is missing.

    A null field with a default in its schema returns the default, as in Java, unless the converter
    keeps nulls.

    Raises:
        RecordError: stage ROUTE; a value on the path has no fields.
    """
    for name in path:
        if value is None:
            return None
        if type(value) is Struct:
            field = value.values.get(name)
            if field is None:
                field = next((s.null_value for n, s in value.schema.fields if n == name), None)
            value = field
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            raise RecordError(
                f"the path of the route field contains a {kind_of(value)}, which has no fields",
                stage="ROUTE",
                code="route_field",
            )
    return value

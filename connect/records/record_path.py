"""The reference path: processes one record at a time, from Kafka's bytes to a table row.

The reference path defines the semantics of a connector's configuration. The column path must return
the same result or pass the record to the reference path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema

from connect.config.aggregation import EVENT_TIME_MICROS
from connect.config.connector import ConnectorConfig, ConverterConfig
from connect.errors import RecordError
from connect.model.records import Header, KafkaRecord, SinkRecord, Struct
from connect.records.conversion.conversion_failure import Unconvertible, kind_of
from connect.records.conversion.row_converter import Conflicts, ConversionOptions, RowConverter
from connect.records.conversion.temporal import TruncationCounts
from connect.records.converters import converter
from connect.records.converters.converter import Converter
from connect.records.converters.record_converters import ConvertersByTopic
from connect.records.routing import Router
from connect.records.row_operations import key_value
from connect.records.transforms.transform_chain import Chain
from connect.records.unavailable_values import refuse_unavailable

# Kafka Connect's default for headers; they stay raw bytes until a transformation reads them
_SIMPLE_HEADER_CONVERTER = "SimpleHeaderConverter"
_ROW_CONVERTERS_KEPT = 1024

Settle = Callable[[dict[str, Any], Conflicts], None]
"""Moves values of a row to other columns; raises ``Unconvertible`` where it cannot."""


class ReferencePath:
    """Reads, routes and converts records one by one.

    An instance is not thread-safe: it caches readers and schemas.

    Args:
        config: the connector's configuration.

    Attributes:
        converters: converters of keys and values, by topic.
        losses: counts truncated digits.

    Raises:
        ConfigError: a converter or regular expression of the configuration is invalid.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self.converters = ConvertersByTopic(config)
        self._header = _header_converter(config.header_converter)
        self._chain = Chain(config.transforms)
        self._router = Router(config)
        self._rows: dict[tuple[int, str | None], tuple[Schema, RowConverter]] = {}
        self.losses = TruncationCounts()

    def read(self, record: KafkaRecord) -> tuple[SinkRecord, ...]:
        """Run the converters and the transformations.

        Returns:
            The transformed records: empty if a transformation drops the record, several if one
            splits it.

        Raises:
            RecordError: with the record's coordinates.
        """
        headers = record.headers
        try:
            converted = tuple(self._headers(record)) if headers else ()
            by = self.converters.of(record.topic)
            key_schema, key = by.key.to_connect(record.topic, headers, record.key)
            value_schema, value = by.value.to_connect(record.topic, headers, record.value)
            read = SinkRecord(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp_ms,
                key,
                key_schema,
                value,
                value_schema,
                converted,
                record.timestamp_type,
            )
            return self._chain.apply(read) if self._chain.links else (read,)
        except RecordError as error:
            error.at(topic=record.topic, partition=record.partition, offset=record.offset)
            raise

    def _headers(self, record: KafkaRecord) -> Iterator[Header]:
        for key, raw in record.headers:
            if self._header is None:
                yield Header(key, raw)
            else:
                schema, value = self._header.to_connect(record.topic, (), raw)
                yield Header(key, value, schema)

    def route(self, record: SinkRecord) -> tuple[str, ...]:
        """Return the tables of a record. The result is empty for tombstones and dropped records.

        Raises:
            RecordError: stage ROUTE, see ``connect.records.routing``.
        """
        try:
            return self._router.route(record)
        except RecordError as error:
            error.at(topic=record.topic, partition=record.partition, offset=record.offset)
            raise

    def row(
        self,
        record: SinkRecord,
        table_schema: Schema,
        name_mapping: str | None = None,
        settle: Settle | None = None,
    ) -> dict[str, Any]:
        """Convert a record to a row: a map from top-level column name to a value for pyarrow.

        Args:
            record: a record that is not a tombstone.
            table_schema: the table's current schema.
            name_mapping: the table property ``schema.name-mapping.default``.
            settle: moves values to other columns whose own column does not take their type; None
                makes them errors.

        Raises:
            RecordError: stage TASK_PUT, code one of
                ``connect.records.conversion.conversion_failure.REASONS``, with the record's
                coordinates and the path of the column.
        """
        value = record.value
        if type(value) is not dict and type(value) is not Struct:
            raise RecordError(
                f"a {kind_of(value)} cannot be a row of a table",
                code="wrong_type",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
        try:
            conflicts: Conflicts | None = None if settle is None else {}
            row = self._row_converter(table_schema, name_mapping).row(value, conflicts)
            if settle is not None and conflicts:
                settle(row, conflicts)
            if self._config.errors.refuses_unavailable:
                refuse_unavailable(row)
            if self._config.aggregation is not None:
                _check_event_time(row, self._config.aggregation.time_field)
        except Unconvertible as refusal:
            raise RecordError(
                refusal.message,
                code=refusal.reason,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                column=".".join(refusal.path),
            ) from None
        except RecursionError:
            raise RecordError(
                "the value is nested too deeply for the column",
                code="too_deep",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            ) from None
        return row

    def key_row(
        self, record: SinkRecord, key_schema: Schema, name_mapping: str | None = None
    ) -> dict[str, Any]:
        """Convert a record that deletes a row to the values of the row's key columns.

        Args:
            record: may be a tombstone, whose message key then has the values.
            key_schema: the key columns of the table's current schema.
            name_mapping: as for ``row``.

        Raises:
            RecordError: as ``row``; ``no_key``, the record has no value in any key column.
        """
        if record.value is None:
            key = key_value(record, tuple(field.name for field in key_schema.fields))
            record = replace(record, value=key, value_schema=None)
        row = self.row(record, key_schema, name_mapping)
        if all(value is None for value in row.values()):
            raise RecordError("a delete without a value in its key columns", code="no_key")
        return row

    def _row_converter(self, schema: Schema, name_mapping: str | None) -> RowConverter:
        cached = self._rows.get((id(schema), name_mapping))
        if cached is not None and cached[0] is schema:
            return cached[1]
        options = ConversionOptions(
            timestamp_unit=self._config.timestamp_unit,
            case_insensitive=self._config.schema_case_insensitive,
            name_mapping=name_mapping,
            losses=self.losses,
        )
        built = RowConverter(schema, options)
        if len(self._rows) >= _ROW_CONVERTERS_KEPT:
            self._rows.clear()
        self._rows[id(schema), name_mapping] = (schema, built)
        return built


def _check_event_time(row: dict[str, Any], column: str) -> None:
    first, last = EVENT_TIME_MICROS
    if not first <= row[column] <= last:
        raise Unconvertible("out_of_range", "the event time is outside the years 1 to 9999").inside(
            column
        )


def _header_converter(config: ConverterConfig) -> Converter | None:
    if config.class_name.rpartition(".")[2] in (_SIMPLE_HEADER_CONVERTER, "SimpleHeader"):
        return None
    return converter(config, "header")

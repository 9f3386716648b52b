"""Table names from topics and record fields: name templates and the topic-to-table map.

Rules of this file:
- A topic or record cannot select the namespace or leave the warehouse. In its text, each character
  except letters, digits, ``_`` and ``-`` is replaced by ``_``.
- Names are lower case, as in dynamic routing.
- A possible name has a namespace, no control characters, and at most 255 bytes before and after its
  last dot. That is the limit of file systems and of SQL catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex
from connect.records.conversion.text import java_text

VARIABLE: Final = re.compile(r"\$\{([^{}:]*)\}")
_UNFIT: Final = re.compile(r"[^\w-]")
_PART_MAX: Final = 200
_LEVEL_BYTES_MAX: Final = 255


class NameTemplate:
    """A table name with variables: ``${topic}``, ``${schema}``, ``${1}`` (groups), ``${field}``.

    Args:
        text: the template.
        topics_regex: the connector's ``topics.regex``, which defines the groups.

    Raises:
        ConfigError: a variable is invalid, or names a group that ``topics.regex`` does not define.
    """

    def __init__(self, text: str, topics_regex: str | None = None) -> None:
        pieces = VARIABLE.split(text)
        self._literals, self._variables = pieces[::2], pieces[1::2]
        self._regex = compile_java_regex(topics_regex) if topics_regex else None
        groups = [int(variable) for variable in self._variables if variable.isdecimal()]
        if any("$" in literal for literal in self._literals) or not all(self._variables):
            raise ConfigError(
                f"the template {text!r} contains an invalid variable ${{...}}", code="template"
            )
        if groups and (self._regex is None or max(groups) > self._regex.groups):
            raise ConfigError(
                f"the template {text!r} names a group that topics.regex does not have",
                code="template",
            )
        self.fields = tuple(
            tuple(variable.split("."))
            for variable in dict.fromkeys(self._variables)
            if variable not in ("topic", "schema") and not variable.isdecimal()
        )
        self.uses_topic = "topic" in self._variables or bool(groups)
        self.uses_schema = "schema" in self._variables

    def name(
        self, topic: str, field: Callable[[tuple[str, ...]], Any], schema: str | None = None
    ) -> str | None:
        """Fill the template.

        Args:
            topic: the record's topic after transformations.
            field: returns the value at a path, or None if there is none.
            schema: full name of the value's schema, or None without one.

        Returns:
            The name, or None if the value of a variable is missing.
        """
        match = self._regex.fullmatch(topic) if self._regex is not None else None
        parts = [self._literals[0]]
        for variable, literal in zip(self._variables, self._literals[1:], strict=True):
            if variable == "topic":
                value: Any = topic
            elif variable == "schema":
                value = schema
            elif variable.isdecimal():
                value = None if match is None else match[int(variable)]
            else:
                value = field(tuple(variable.split(".")))
            text = "" if value is None else java_text(value)
            if not text or len(text) > _PART_MAX:
                return None
            parts += [_UNFIT.sub("_", text), literal]
        return "".join(parts).lower()


def name_error(name: str) -> str | None:
    """Return why no table can have this name, ``namespace.table``; None if one can."""
    namespace, _, table = name.rpartition(".")
    levels = name.split(".")
    if not namespace:
        return "it has no namespace"
    if not all(levels):
        return "a part of it is empty"
    if not name.isprintable():  # nor has it half of a pair of surrogates
        return "it contains characters that cannot be printed"
    if any(level != level.strip() for level in levels):
        return "a part of it begins or ends with a space"
    if any(len(each.encode()) > _LEVEL_BYTES_MAX for each in (namespace, table)):
        return f"its namespace or table is longer than {_LEVEL_BYTES_MAX} bytes"
    return None


def topic_map(entries: list[str]) -> Mapping[str, str]:
    """Parse ``topic:table`` entries into a map from topic to table.

    Raises:
        ConfigError: an entry is invalid, or a topic occurs twice.
    """
    tables: dict[str, str] = {}
    for entry in entries:
        topic, separator, table = (part.strip() for part in entry.partition(":"))
        if not topic or not separator or not table:
            raise ConfigError(f"{entry!r} is not topic:table", code="topic_map")
        if topic in tables:
            raise ConfigError(f"the topic {topic} is mapped twice", code="topic_map")
        tables[topic] = table
    return tables

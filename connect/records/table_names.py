"""Table names from topics and fields: templates, and the map from topics to tables.

Rules of this file:
- What comes from a topic or a record cannot choose the namespace or leave the warehouse: every
  character of it but letters, digits, ``_`` and ``-`` becomes ``_``.
- Names are lower case, as those of dynamic routing are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex
from connect.records.conversion.text import java_text

HOLE: Final = re.compile(r"\$\{([^{}:]*)\}")
_UNFIT: Final = re.compile(r"[^\w-]")
_PART_MAX: Final = 200


class NameTemplate:
    """A table name with holes: ``${topic}``, ``${schema}``, ``${1}`` (groups), ``${field}``.

    Args:
        text: the template.
        topics_regex: the connector's, for groups.

    Raises:
        ConfigError: a hole that is none, or a group without regular expression.
    """

    def __init__(self, text: str, topics_regex: str | None = None) -> None:
        pieces = HOLE.split(text)
        self._literals, self._holes = pieces[::2], pieces[1::2]
        self._regex = compile_java_regex(topics_regex) if topics_regex else None
        groups = [int(hole) for hole in self._holes if hole.isdecimal()]
        if any("$" in literal for literal in self._literals) or not all(self._holes):
            raise ConfigError(f"the template {text!r} has a ${{...}} that is none", code="template")
        if groups and (self._regex is None or max(groups) > self._regex.groups):
            raise ConfigError(
                f"the template {text!r} names a group that topics.regex does not have",
                code="template",
            )
        self.fields = tuple(
            tuple(hole.split("."))
            for hole in dict.fromkeys(self._holes)
            if hole not in ("topic", "schema") and not hole.isdecimal()
        )
        self.uses_topic = "topic" in self._holes or bool(groups)
        self.uses_schema = "schema" in self._holes

    def name(
        self, topic: str, field: Callable[[tuple[str, ...]], Any], schema: str | None = None
    ) -> str | None:
        """Fill the template.

        Args:
            topic: of the record, as transformations left it.
            field: gives the value at a path, None where there is none.
            schema: full name of the value's schema; None where it has none.

        Returns:
            the name; None when something to fill in is missing.
        """
        match = self._regex.fullmatch(topic) if self._regex is not None else None
        parts = [self._literals[0]]
        for hole, literal in zip(self._holes, self._literals[1:], strict=True):
            if hole == "topic":
                value: Any = topic
            elif hole == "schema":
                value = schema
            elif hole.isdecimal():
                value = None if match is None else match[int(hole)]
            else:
                value = field(tuple(hole.split(".")))
            text = "" if value is None else java_text(value)
            if not text or len(text) > _PART_MAX:
                return None
            parts += [_UNFIT.sub("_", text), literal]
        return "".join(parts).lower()


def topic_map(entries: list[str]) -> Mapping[str, str]:
    """Tables by topic from ``topic:table`` entries.

    Raises:
        ConfigError: an entry that is none, or a topic twice.
    """
    found: dict[str, str] = {}
    for entry in entries:
        topic, separator, table = (part.strip() for part in entry.partition(":"))
        if not topic or not separator or not table:
            raise ConfigError(f"{entry!r} is not topic:table", code="topic_map")
        if topic in found:
            raise ConfigError(f"the topic {topic} is mapped twice", code="topic_map")
        found[topic] = table
    return found

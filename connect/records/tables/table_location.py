"""Locations of new tables, from the template ``iceberg.tables.default-location``.

Rules of this file:
- The template may contain the variables ``${namespace}`` and ``${table}`` only. Namespace levels
  are joined by dots, so that no table is inside another table's folder.
- The values of the variables consist of letters, digits, ``_`` and ``-``. Names may come from
  records, so they must neither leave the folder nor map two tables to one folder.
- Without a template the catalog chooses the location, and clients parse it as a URL. The names of a
  new table have none of the characters that separate or encode parts of a URL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from connect.errors import ConfigError, RecordError

NAMESPACE: Final = "${namespace}"
TABLE: Final = "${table}"
_ABSOLUTE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/]|(file:)?/+[^/]")
_LEVEL: Final = re.compile(r"[\w-]+")
_SPECIAL: Final = re.compile(r"[/\\%?#;]")


def check_location(template: str) -> None:
    """Check a template.

    Raises:
        ConfigError: code ``table_location``; the location is not absolute, or a variable is
            invalid.
    """
    if not _ABSOLUTE.match(template):
        raise _bad(template, "give a URI, such as s3://bucket/lake/${namespace}/${table}")
    left = template.replace(NAMESPACE, "").replace(TABLE, "")
    if "${" in left:
        raise _bad(template, f"the only variables are {NAMESPACE} and {TABLE}")
    if ".." in left.split("/"):
        raise _bad(template, "it contains ..")


def _bad(template: str, message: str) -> ConfigError:
    return ConfigError(f"location {template!r}: {message}", code="table_location")


def check_names(identifier: Sequence[str]) -> None:
    """Check the names of a new table whose location the catalog chooses.

    Raises:
        RecordError: code ``table_location``.
    """
    for level in identifier:
        if (special := _SPECIAL.search(level)) is not None:
            raise RecordError(
                f"the location of a new table cannot contain {special[0]!r}", code="table_location"
            )


def location_for(template: str, identifier: Sequence[str]) -> str:
    """Return the location of a table.

    Args:
        template: the configured template.
        identifier: namespace levels and name of the table.

    Raises:
        ConfigError: the template is invalid.
        RecordError: code ``table_location``; the table's name has characters that a location may
            not have.
    """
    check_location(template)
    if TABLE in template or NAMESPACE in template:
        for level in identifier:
            if not _LEVEL.fullmatch(level):
                raise RecordError(
                    f"the table's location cannot contain {level!r}: use letters, digits, _ and -",
                    code="table_location",
                )
    *namespace, name = identifier
    filled = template.replace(NAMESPACE, ".".join(namespace)).replace(TABLE, name)
    return filled.rstrip("/")

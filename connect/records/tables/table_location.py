"""Where new tables lie, from the text of ``iceberg.tables.default-location``.

Rules of this file:
- ``${namespace}`` (levels joined by dots, so that no table lies inside another one's folder) and
  ``${table}`` are filled in; nothing else is.
- What is filled in consists of letters, digits, ``_`` and ``-``: names may come from records, and
  none of them leads out of the folder or makes two tables share one.
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


def check_location(template: str) -> None:
    """Judge a template.

    Raises:
        ConfigError: code ``table_location``; no absolute location, or a hole that is none.
    """
    if not _ABSOLUTE.match(template):
        raise _bad(template, "give a URI, such as s3://bucket/lake/${namespace}/${table}")
    left = template.replace(NAMESPACE, "").replace(TABLE, "")
    if "${" in left:
        raise _bad(template, f"only {NAMESPACE} and {TABLE} are filled in")
    if ".." in left.split("/"):
        raise _bad(template, "it goes up by ..")


def _bad(template: str, message: str) -> ConfigError:
    return ConfigError(f"location {template!r}: {message}", code="table_location")


def location_for(template: str, identifier: Sequence[str]) -> str:
    """Fill a template in.

    Args:
        template: as configured.
        identifier: namespace levels and name of the table.

    Raises:
        ConfigError: the template is none.
        RecordError: code ``table_location``; the table's name has characters that locations of
            tables may not have.
    """
    check_location(template)
    if TABLE in template or NAMESPACE in template:
        for level in identifier:
            if not _LEVEL.fullmatch(level):
                raise RecordError(
                    f"no location is made of {level!r}: it has other characters than letters, "
                    "digits, _ and -",
                    code="table_location",
                )
    *namespace, name = identifier
    filled = template.replace(NAMESPACE, ".".join(namespace)).replace(TABLE, name)
    return filled.rstrip("/")

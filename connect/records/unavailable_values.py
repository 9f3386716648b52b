"""Values that the source of a change did not send: Debezium puts a placeholder in their place.

PostgreSQL does not log large values (TOAST) that an update leaves unchanged, Oracle the same of its
LOBs. A row with the placeholder replaces the row that has the value.

Source:
    Debezium 3.6 ``PostgresConnectorConfig.UNAVAILABLE_VALUE_PLACEHOLDER`` with its default, and
    ``PostgresValueConverter`` for the form in columns that are no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connect.records.conversion.conversion_failure import Unconvertible

UNAVAILABLE: Final = "__debezium_unavailable_value"
CURE: Final = (
    "set REPLICA IDENTITY FULL for the source table, or Debezium's post.processors=reselector"
)
_FORMS: Final = (UNAVAILABLE, UNAVAILABLE.encode(), [UNAVAILABLE], [UNAVAILABLE.encode()])


def refuse_unavailable(row: Mapping[str, Any]) -> None:
    """Refuse a row with a placeholder.

    Args:
        row: values for Arrow by the name of their top-level column.

    Raises:
        Unconvertible: ``unavailable_value``.
    """
    for name, value in row.items():
        if value in _FORMS:
            raise Unconvertible(
                "unavailable_value", f"the source did not send the unchanged value: {CURE}"
            ).inside(name)

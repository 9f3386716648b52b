"""What the status of an HTTP answer says about sending the same request again."""

from __future__ import annotations

from typing import Final

_TEMPORARY: Final = frozenset({408, 425, 429})


def is_temporary(status: int) -> bool:
    """Return whether the server may accept the same request later."""
    return status in _TEMPORARY or status >= 500

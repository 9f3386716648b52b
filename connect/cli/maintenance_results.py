"""Results of table maintenance as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NUMBERS: Final = {
    "rewritten_files": "{} data files rewritten",
    "rewritten_bytes": "{} bytes",
    "added_files": "into {} files",
    "removed_delete_files": "{} delete files removed",
    "rewritten_manifests": "{} manifests rewritten",
    "orphan_files": "{} orphan files deleted",
    "failed_files": "{} files not rewritten",
    "lost_commits": "{} commits lost against others",
}


def result_text(result: Mapping[str, Any]) -> str:
    """Return what a work has done, or why it failed."""
    if result["state"] == "FAILED":
        return f"{result['code']}: {result['message']}"
    return ", ".join(text.format(result[key]) for key, text in _NUMBERS.items() if result.get(key))

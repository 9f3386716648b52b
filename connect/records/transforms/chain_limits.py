"""Bounds of what transformations may make of one record."""

from __future__ import annotations

from typing import Final

RECORDS_MAX: Final = 100_000
"""Most records that one record may become."""

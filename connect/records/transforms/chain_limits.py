"""Limits of the transformation chain."""

from __future__ import annotations

from typing import Final

RECORDS_MAX: Final = 100_000
"""Maximum number of records that transformations may create from one record."""

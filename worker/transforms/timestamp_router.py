"""``TimestampRouter`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform_chain import ChainedTransform
from worker.transforms.regex_router import TopicSteps
from worker.transforms.rows import ColumnStep

_DAY_MS: Final = 86_400_000


# the smallest letter of a pattern gives the instants that it writes alike
_GRAINS_MS: Final = (("S", 1), ("s", 1_000), ("m", 60_000), ("HKkha", 3_600_000))


def timestamp_topics(link: ChainedTransform, options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``TimestampRouter``."""
    letters = DateFormat(options["timestamp.format"] or "").letters
    grain = next((g for some, g in _GRAINS_MS if not letters.isdisjoint(some)), _DAY_MS)
    return TopicSteps(link, grain)

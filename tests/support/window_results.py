"""Event-time aggregates as tests compute them, and as a topic of results holds them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

START = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
Key = tuple[Any, ...]
Value = dict[str, Any]


def event(second: float, device: str | None, amount: int, user: str = "u") -> dict[str, Any]:
    """Return a record with an event time, as seconds after ``START``."""
    at = START + dt.timedelta(seconds=second)
    return {"ts": iso(at), "device": device, "amount": amount, "user": user, "unused": "x"}


def iso(at: dt.datetime) -> str:
    """Return a time as results contain it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def computed(
    records: Iterable[Mapping[str, Any]], window_s: int, slide_s: int | None = None
) -> dict[Key, Value]:
    """Return count, sum, minimum, maximum, average and distinct users by device and window."""
    slide = slide_s or window_s
    groups: dict[tuple[Any, int], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        at = dt.datetime.fromisoformat(record["ts"]).timestamp()
        start = int(at // slide) * slide
        while start > at - window_s:
            groups[record["device"], start].append(record)
            start -= slide
    results: dict[Key, Value] = {}
    for (device, start), members in groups.items():
        amounts = [each["amount"] for each in members]
        text = iso(dt.datetime.fromtimestamp(start, dt.UTC))
        results[device, text] = {
            "window_start": text,
            "window_end": iso(dt.datetime.fromtimestamp(start + window_s, dt.UTC)),
            "device": device,
            "n": len(members),
            "total": sum(amounts),
            "least": min(amounts),
            "most": max(amounts),
            "mean": sum(amounts) / len(amounts),
            "users": len({each["user"] for each in members}),
        }
    return results


def updates(records: Sequence[Any]) -> dict[Key, list[Value]]:
    """Return the values of each key of a topic of results, in their order."""
    found: dict[Key, list[Value]] = defaultdict(list)
    for record in records:
        key = json.loads(record.key())
        found[tuple(key.values())].append(json.loads(record.value()))
    return dict(found)


def check_each_update_once(found: Mapping[Key, Sequence[Value]]) -> None:
    """Check that counts grow from update to update: none is there twice, or behind a newer one."""
    for key, values in found.items():
        counts = [value["n"] for value in values]
        assert counts == sorted(set(counts)), f"updates of {key}: {counts}"

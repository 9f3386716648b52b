"""Generate records from a seed: new records, and recorded records changed."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from tests.golden import generated_values as generated
from tests.golden import records_suite as suite

Case = dict[str, Any]


@cache
def recorded(folder: str, name: str = "*") -> tuple[Case, ...]:
    """The cases of a folder."""
    paths = sorted((suite.DIRECTORY / folder).glob(f"{name}.jsonl"))
    return tuple(case for path in paths for case in suite.cases_of(path))


def record(rng: Random, names: tuple[str, ...] = ()) -> Case:
    """A record; most of the names are fields of its value."""
    case: Case = {
        "topic": rng.choice(("orders", "orders", "a-raw", "db.t", "o")),
        "partition": 2,
        "offset": 42,
        "timestamp": rng.choice((1700000000123, 1700000000123, None, 0, -1, 253402300800000)),
        "headers": [],
        "schemas": rng.random() < 0.5,
    }
    for side in ("key", "value"):
        if rng.random() < 0.1:
            case[side] = None
        elif case["schemas"]:
            schema = generated.struct(rng) if rng.random() < 0.9 else generated.schema(rng)
            for field in schema.get("fields", ()):
                fits = [n for n in names if all(f["field"] != n for f in schema["fields"])]
                if fits and rng.random() < 0.7:
                    field["field"] = rng.choice(fits)
            case[side] = {"schema": schema, "payload": generated.payload(rng, schema)}
        else:
            value = generated.fields(rng) if rng.random() < 0.9 else generated.value(rng)
            if isinstance(value, dict) and not any(key.startswith("$") for key in value):
                value |= {n: generated.value(rng, 1) for n in names if rng.random() < 0.7}
            case[side] = value
    if rng.random() < 0.3:
        case["headers"] = [_header(rng) for _ in range(rng.randrange(1, 3))]
    return case


def _header(rng: Random) -> Case:
    if rng.random() < 0.5:
        return {"key": rng.choice("abh"), "schema": None, "value": generated.text(rng)}
    schema = generated.schema(rng, 0)
    return {"key": rng.choice("abh"), "schema": schema, "value": generated.payload(rng, schema)}


def mutated(rng: Random, given: Case) -> Case:
    """A recorded record with a change; schemas stay, as most payloads fit one schema only."""
    case = dict(given)
    if not given["schemas"]:
        side = rng.choice(("key", "value", "value"))
        case[side] = generated.mutated(rng, given[side])
    elif rng.random() < 0.3:
        case[rng.choice(("key", "value"))] = None
    return case

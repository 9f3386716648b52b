"""Generate texts for Kafka's ``Values.parseString`` that are not recorded, from a seed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random
from typing import Any

from tests.golden import generated_values as generated
from tests.golden.generated_records import Case

_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_MARKS = (",", ":", "{", "}", "[", "]", '"', "\\", " ", "0", "-", "e", "")
_BLANKS = ("", "", "", "", " ", "  ", "\t")


def header(rng: Random) -> Case:
    """One case of ``converters/SimpleHeaderConverter``."""
    data = literal(rng).encode()
    if rng.random() < 0.03:
        data += rng.randbytes(2)
    given = {"bytes": base64.b64encode(data).decode()}
    return {"converter": _HEADER_CONVERTER, "role": "header", "config": {}, "input": given}


def literal(rng: Random) -> str:
    """A text that may be a value, a list, a map, or nearly one."""
    text = _value(rng, rng.choice((0, 1, 1, 2, 3)))
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(_MARKS) + text[at + rng.randrange(2) :]
    rest = ("", "", "", "", "", ",", " x", "]", ":1", "}", ",1", '"', "\\")
    return rng.choice(_BLANKS) + text + rng.choice(rest)


def _value(rng: Random, depth: int) -> str:
    if not depth:
        return rng.choice(_LITERALS)(rng)
    is_list = rng.random() < 0.5
    one = rng.choice(_LITERALS)  # of one kind, so that there is a common schema

    def inner() -> str:
        kind = rng.random()
        if kind < 0.6:
            return one(rng)
        return _value(rng, depth - 1 if kind < 0.85 else 0)

    items = []
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        items.append(_spaced(rng, inner()))
        if not is_list:
            keys = (_quoted, _quoted, _whole, _number, one, lambda r: _value(r, 1))
            items[-1] = f"{_spaced(rng, rng.choice(keys)(rng))}:{items[-1]}"
    text = ("" if rng.random() < 0.02 else ",").join(items) + rng.choice(("", "", "", ",", " "))
    return f"[{text}]" if is_list else f"{{{text}}}"


def _spaced(rng: Random, text: str) -> str:
    return rng.choice(_BLANKS) + text + rng.choice(_BLANKS)


def _whole(rng: Random) -> str:
    return rng.choice(("", "", "+", "-", "00")) + str(abs(generated.integer(rng)))


def _number(rng: Random) -> str:
    return rng.choice(generated.NUMBERS)


def _fraction(rng: Random) -> str:
    number = generated.double(rng)
    return rng.choice(
        (repr(number), f"{number:.3f}", f"{number:E}", f"{generated.integer(rng)}.50")
    )


def _long(rng: Random) -> str:
    return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 45)))


def _temporal(rng: Random) -> str:
    day, clock = _day(rng), _clock(rng)
    written = rng.choice((day, clock, f"{day}T{clock}"))
    written = written.replace(":", "\\:") if rng.random() < 0.2 else written
    return generated.changed(rng, written) if rng.random() < 0.2 else written


def _day(rng: Random) -> str:
    year = rng.choice((1, 100, 1582, 1583, 1900, 1969, 1970, 2024, 9999, 0))
    return f"{year:04}-{rng.randrange(14):02}-{rng.randrange(33):02}"


def _clock(rng: Random) -> str:
    hour, minute = rng.randrange(26), rng.randrange(62)
    return f"{hour:02}:{minute:02}:{rng.randrange(62):02}.{rng.randrange(1000):03}Z"


def _quoted(rng: Random) -> str:
    inner = rng.choice((generated.text, generated.text, _temporal, _number))(rng)
    inner = inner.replace("\\", "\\\\").replace('"', '\\"') if rng.random() < 0.8 else inner
    return f'"{inner}"'


def _bare(rng: Random) -> str:
    return rng.choice(("true", "false", "null", "null", "TRUE", "true false", "x", " ", "None"))


def _list_of(rng: Random) -> str:
    return _value(rng, 1)


_LITERALS: tuple[Callable[[Random], str], ...] = (
    *(_whole, _whole, _number, _fraction, _fraction, _long, _temporal, _temporal, _temporal),
    *(_quoted, _quoted, _quoted, _bare, _bare, _list_of, generated.text, generated.text),
)


# ------------------------------------------------------------------ answers


def has_odd_keys(answer: Any) -> bool:
    """Whether an answer holds a map whose keys are lists, maps or equal numbers of two kinds."""
    if isinstance(answer, list):
        return any(map(has_odd_keys, answer))
    if not isinstance(answer, dict):
        return False
    if isinstance(answer.get("keys"), dict) and answer["keys"].get("type") in ("array", "map"):
        return True
    keys = [_inner(key) for key, _ in answer.get("$map", ())]
    if any(isinstance(key, list | dict) for key in keys) or len(set(keys)) < len(keys):
        return True
    return any(map(has_odd_keys, answer.values()))


def _inner(key: Any) -> Any:
    """What stands in a typed form."""
    is_typed = isinstance(key, dict) and len(key) == 1 and next(iter(key)).startswith("$")
    return next(iter(key.values())) if is_typed else key

"""Version wishes as Kafka Connect reads them: ``1.2``, ``latest``, ``[1.0,2.0)``."""

from __future__ import annotations

import re

from connect.errors import ConfigError

_RESTRICTION = re.compile(r"([\[(])([^\])]*)([\])])")


def complaint(class_name: str, wanted: str, installed: str) -> str | None:
    """``mismatch``, or what is wrong with the wish itself."""
    try:
        return mismatch(class_name, wanted, installed)
    except ConfigError as error:
        return error.message


def mismatch(class_name: str, wanted: str, installed: str) -> str | None:
    """Kafka's sentence when the installed version is not what is wanted.

    Args:
        class_name: the plugin.
        wanted: a version, ``latest``, or a range.
        installed: the one version there is.

    Raises:
        ConfigError: the wish cannot be read; in Maven's words, as Kafka's are.
    """
    wish = wanted.strip()
    if wish in {"latest", installed}:
        return None
    ranges = wish if wish.startswith(("[", "(")) else f"[{wish}]"
    found = []
    while ranges.startswith(("[", "(")):
        match = _RESTRICTION.match(ranges)
        if match is None:
            raise ConfigError(f"Unbounded range: {ranges}", code="version")
        found.append(_restriction(match))
        ranges = ranges[match.end() :].strip().removeprefix(",").strip()
    if ranges:
        raise ConfigError(
            f"Only fully-qualified sets allowed in multiple set scenario: {wish}", code="version"
        )
    if any(_holds(restriction, installed) for restriction in found):
        return None
    displayed = ",".join(f"{begin}{low},{high}{end}" for begin, low, high, end in found)
    return (
        f"Plugin {class_name} not found that matches the version range {displayed}, "
        f"available versions: [{installed}]"
    )


def _restriction(match: re.Match[str]) -> tuple[str, str, str, str]:
    begin, inner, end = match.groups()
    low, comma, high = (part.strip() for part in inner.partition(","))
    if not comma:
        if begin + end != "[]":
            raise ConfigError(
                f"Single version must be surrounded by []: {match[0]}", code="version"
            )
        return begin, low, low, end
    order = (_number(high) > _number(low)) - (_number(high) < _number(low))
    is_reversed = order < 0 or (order == 0 and begin + end != "[]")
    if low and high and is_reversed:
        raise ConfigError(f"Range defies version ordering: {match[0]}", code="version")
    return begin, low, high, end


def _holds(restriction: tuple[str, str, str, str], installed: str) -> bool:
    begin, low, high, end = restriction
    number = _number(installed)
    if not (low or high):
        return False  # as Kafka has it
    above = not low or (_number(low) <= number if begin == "[" else _number(low) < number)
    below = not high or (number <= _number(high) if end == "]" else number < _number(high))
    return above and below


def _number(text: str) -> tuple[tuple[int, int, str], ...]:
    """Numbers by value and after every word, as Maven orders them."""
    parts = re.findall(r"[0-9]+|[^0-9.\-]+", text)
    return tuple((1, int(p), "") if p.isdecimal() else (0, 0, p.lower()) for p in parts)

"""Version ranges as in Kafka Connect: ``1.2``, ``latest``, ``[1.0,2.0)``."""

from __future__ import annotations

import re

from connect.errors import ConfigError

_RESTRICTION = re.compile(r"([\[(])([^\])]*)([\])])")


def complaint(class_name: str, requested: str, installed: str) -> str | None:
    """Return the error of ``mismatch``, or of an invalid version range."""
    try:
        return mismatch(class_name, requested, installed)
    except ConfigError as error:
        return error.message


def mismatch(class_name: str, requested: str, installed: str) -> str | None:
    """Return Kafka's error message if the installed version is not in the requested range.

    Args:
        class_name: class of the plugin.
        requested: the requested version, ``latest``, or a range.
        installed: the installed version.

    Raises:
        ConfigError: the range is invalid; the message is Maven's, as in Kafka.
    """
    requested = requested.strip()
    if requested in {"latest", installed}:
        return None
    ranges = requested if requested.startswith(("[", "(")) else f"[{requested}]"
    restrictions = []
    while ranges.startswith(("[", "(")):
        match = _RESTRICTION.match(ranges)
        if match is None:
            raise ConfigError(f"Unbounded range: {ranges}", code="version")
        restrictions.append(_restriction(match))
        ranges = ranges[match.end() :].strip().removeprefix(",").strip()
    if ranges:
        raise ConfigError(
            f"Only fully-qualified sets allowed in multiple set scenario: {requested}",
            code="version",
        )
    if any(_holds(restriction, installed) for restriction in restrictions):
        return None
    displayed = ",".join(f"{begin}{low},{high}{end}" for begin, low, high, end in restrictions)
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
        return False  # as in Kafka
    above = not low or (_number(low) <= number if begin == "[" else _number(low) < number)
    below = not high or (number <= _number(high) if end == "]" else number < _number(high))
    return above and below


def _number(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return the sort key of a version: as in Maven, numbers sort by value and after text."""
    parts = re.findall(r"[0-9]+|[^0-9.\-]+", text)
    return tuple((1, int(p), "") if p.isdecimal() else (0, 0, p.lower()) for p in parts)

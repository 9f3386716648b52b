"""Version wishes as Kafka Connect reads them: ``1.2``, ``latest``, ``[1.0,2.0)``."""

from __future__ import annotations

import re

from connect.errors import ConfigError

_RANGE = re.compile(r"([\[(])\s*([^,\[\]()]*?)\s*(?:(,)\s*([^,\[\]()]*?)\s*)?([\])])")


def mismatch(class_name: str, wanted: str, installed: str) -> str | None:
    """Kafka's sentence when the installed version is not what is wanted.

    Args:
        class_name: the plugin.
        wanted: a version, ``latest``, or a range.
        installed: the one version there is.

    Raises:
        ConfigError: the wish cannot be read.
    """
    wish = wanted.strip()
    if wish in {"latest", "", installed}:
        return None
    if wish[0] not in "[(":
        low = high = wish
        has_low = has_high = True
    else:
        match = _RANGE.fullmatch(wish)
        if match is None:
            raise ConfigError(f"Unbounded range: {wanted}", code="version")
        low, high = match[2], match[4] if match[3] else match[2]
        has_low, has_high = match[1] == "[", match[5] == "]"
    number = _number(installed)
    above = not low or (_number(low) <= number if has_low else _number(low) < number)
    below = not high or (number <= _number(high) if has_high else number < _number(high))
    if above and below:
        return None
    shown = f"[{low},{high}]" if wish[0] not in "[(" else wish
    return (
        f"Plugin {class_name} not found that matches the version range {shown}, "
        f"available versions: [{installed}]"
    )


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", text))

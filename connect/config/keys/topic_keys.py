"""Keys for single topics of a connector: ``icefloe.topic.<name>.<setting>``.

The name is a topic, or any name for the topics that ``icefloe.topic.<name>.regex`` matches. It ends
at the first setting, because topic names and options contain dots.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from connect.config.key import Key

TOPIC_PREFIX: Final = "icefloe.topic."
REGEX: Final = "regex"
CONVERTER_SETTINGS: Final = ("key.converter", "value.converter")
TOPIC_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "key.converter",
        "CLASS",
        "Converter of record keys of the topic instead of the connector's; its options have the "
        "prefix `icefloe.topic.<name>.key.converter.`.",
    ),
    Key(
        "value.converter",
        "CLASS",
        "Converter of record values of the topic instead of the connector's; its options have the "
        "prefix `icefloe.topic.<name>.value.converter.`.",
    ),
    Key(
        REGEX,
        "STRING",
        "Regular expression for whole topic names: the converters are those of all matching "
        "topics, and `<name>` is any name. A topic with converters of its own name is left out.",
    ),
)
_KEY: Final = re.compile(
    r"icefloe\.topic\.(.+?)\.(?:(regex)|((?:key|value)\.converter)(?:\.(.+))?)", re.DOTALL
)


class TopicKey(NamedTuple):
    """A key for a topic, in parts.

    Attributes:
        name: topic, or name of a pattern.
        setting: name of a key in ``TOPIC_KEYS``.
        option: option of a converter; None for its class.
    """

    name: str
    setting: str
    option: str | None = None

    @property
    def whole(self) -> str:
        """Return the key of the setting, without an option."""
        return f"{TOPIC_PREFIX}{self.name}.{self.setting}"


def topic_key(key: str) -> TopicKey | None:
    """Return the parts of a key for a topic; None for other keys."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    name, regex, setting, option = match.groups()
    return TopicKey(name, regex or setting, option)

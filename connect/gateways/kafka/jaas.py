"""The text of ``sasl.jaas.config``, parsed and written as Java does.

Source:
    ``org.apache.kafka.common.security.JaasConfig`` 4.3.1, on ``java.io.StreamTokenizer``: names,
    values in double or single quotes, comments, one entry that ends with a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from connect.errors import ConfigError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<name>[\w$.\-\u00a0-\u00ff]+)
    | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options."""

    module: str
    options: Mapping[str, str]

    @property
    def short_module(self) -> str:
        """The class's name without its package."""
        return self.module.rpartition(".")[2]

    def text(self) -> str:
        """Return the entry as the value of ``sasl.jaas.config``."""
        options = "".join(f" {name}={_quoted(value)}" for name, value in self.options.items())
        return f"{self.module} required{options};"


def parse_jaas(text: str) -> JaasEntry:
    """Parse the value of ``sasl.jaas.config``.

    Raises:
        ConfigError: ``kafka_jaas``; the message contains no value.
    """
    tokens = _tokens(text)
    module, flag, *rest = [*tokens, ("end", ""), ("end", "")]
    if module[0] not in {"name", "quoted"} or flag[1].lower() not in _FLAGS:
        raise _error("it must begin with a class name and 'required'")
    options: dict[str, str] = {}
    position = 0
    while rest[position][0] in {"name", "quoted"}:
        name, equals, value = [*rest[position : position + 3], ("end", ""), ("end", "")][:3]
        if equals[1] != "=" or equals[0] != "mark" or value[0] not in {"name", "quoted"}:
            raise _error(f"the option {name[1]!r} has no value")
        options[name[1]] = value[1]
        position += 3
    if rest[position] != ("mark", ";"):
        raise _error("it must end with a semicolon")
    if rest[position + 1][0] != "end":
        raise _error("it must have one login module")
    return JaasEntry(module[1], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _error(f"character {position + 1} is not expected; values need quotes")
        position = match.end()
        if match["quoted"]:
            tokens.append(("quoted", _ESCAPE.sub(_character, match["quoted"][1:-1])))
        elif match.lastgroup is not None:
            tokens.append((match.lastgroup, match[0]))
    return tokens


def _character(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code.isdecimal() and code < "8" else _CHARACTERS.get(code, code)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _error(reason: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {reason}. Example: {PLAIN_MODULE} required "
        'username="..." password="...";',
        code="kafka_jaas",
    )

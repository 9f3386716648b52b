"""Writes ``docs/reference/configuration.md`` from the declarations.

``python -m connect.generated_docs.configuration_page [FILE]``
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from connect.config.key import Key, Prefix
from connect.config.keys import framework_keys, iceberg_keys
from connect.config.keys.connector_keys import CONNECTOR_KEYS, FRAMEWORK_KEYS
from connect.config.node.node_keys import NODE_KEYS
from connect.config.node.node_prefixes import NODE_PREFIXES
from connect.validation import cross_key_rules, ignored_keys
from connect.validation.config_view import Rule
from connect.validation.plugins import JSON_CONVERTER_KEYS, OWN_CONVERTER_KEYS, REGISTRY_CONVERTERS

DEFAULT_PATH = Path("docs/reference/configuration.md")
_HEAD = """\
# Configuration

Written by `make docs` from the declarations in `connect/config`; do not edit.

Connectors take the keys of Kafka Connect and of the Apache Iceberg sink with the same meaning and,
where nothing else is said, the same default. Values may hold `${provider:path:key}` placeholders.
An unknown key that starts with `iceberg.` or `icefloe.` is an error; other unknown keys are kept
and ignored.
"""
_TOGETHER = """\
Asked when a configuration is validated, created or changed; connectors that are stored go on.
Errors are told unless:
"""
_ENVIRONMENT = """\
Every key can also be given as an environment variable: `CONNECT_`, upper case, `.` as `_`, `_` as
`__`, `-` as `___`.
"""


def render() -> str:
    """The whole page."""
    own_prefixes = [p for p in iceberg_keys.PREFIXES if p.java_only is None]
    parts = [
        _HEAD,
        _section("Connector: common keys", framework_keys.COMMON_KEYS + framework_keys.SINK_KEYS),
        _prefixes(framework_keys.PREFIXES),
        _section("Connector: keys of the Java sink", _with_effect(iceberg_keys.JAVA_KEYS)),
        _section("Connector: keys of Icefloe", iceberg_keys.OWN_KEYS),
        _section("Per table, below `iceberg.table.<namespace>.<table>.`", iceberg_keys.TABLE_KEYS),
        _prefixes(own_prefixes),
        _section(
            "JSON converter, below `key.converter.` or `value.converter.`", JSON_CONVERTER_KEYS
        ),
        _section("Every converter, below its prefix", OWN_CONVERTER_KEYS),
        *(
            _section(f"{name.rpartition('.')[2]}, below its prefix", _with_effect(keys))
            for name, keys in REGISTRY_CONVERTERS.items()
        ),
        _together(),
        _without_effect(),
        _section("Node", _with_effect(NODE_KEYS)),
        _ENVIRONMENT,
        _prefixes(NODE_PREFIXES),
    ]
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Write the page."""
    path = Path(arguments[0]) if arguments else DEFAULT_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(), encoding="utf-8")


def _with_effect(keys: Iterable[Key]) -> list[Key]:
    return [key for key in keys if key.java_only is None]


def _section(title: str, keys: Iterable[Key]) -> str:
    return f"## {title}\n\n{key_table(keys)}"


def key_table(keys: Iterable[Key]) -> str:
    """A table of keys, a row each."""
    lines = [
        "| key | type | default | unit | importance | meaning |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(key) for key in keys]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    if key.is_required:
        default = "required"
    elif key.default_text is None:
        default = ""
    else:
        default = f"`{key.default_text}`" if key.default_text else "empty"
    doc = key.doc
    if key.choices:
        doc += " One of " + ", ".join(f"`{choice}`" for choice in key.choices) + "."
    if key.java_only:
        doc += f" Without effect: {key.java_only}."
    cells = (
        f"`{key.name}`",
        key.type.lower(),
        default,
        key.unit or "",
        key.importance.lower(),
        doc.replace("|", "\\|"),
    )
    return "| " + " | ".join(cells) + " |"


def _prefixes(prefixes: Iterable[Prefix]) -> str:
    lines = ["| keys that start with | meaning | example |", "|---|---|---|"]
    lines += [f"| `{p.name}` | {p.doc} | `{p.example}` |" for p in prefixes]
    return "\n".join(lines) + "\n"


def _together() -> str:
    lines = [
        "## Connector: keys together\n",
        _TOGETHER,
        *_rules(cross_key_rules.RULES),
        "\nA warning is logged, and nothing else, for:\n",
        *_rules(ignored_keys.RULES),
    ]
    return "\n".join(lines) + "\n"


def _rules(rules: Iterable[Rule]) -> list[str]:
    return [f"- {(rule.__doc__ or '').strip()}" for rule in rules]


def _without_effect() -> str:
    lines = [
        "## Accepted without effect\n",
        "`validate` says so in the documentation of a key; setting one logs a warning.\n",
    ]
    keys = (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *NODE_KEYS)
    lines += [f"- `{key.name}`: {key.java_only}" for key in keys if key.java_only]
    lines += [
        f"- `{p.name}*`: {p.java_only}" for p in iceberg_keys.PREFIXES if p.java_only is not None
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])

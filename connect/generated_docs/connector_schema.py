"""Writes ``docs/reference/connector.schema.json`` from the declarations.

``python -m connect.generated_docs.connector_schema``

For editors: names, types, choices, defaults and meanings of a connector's keys, in both of Kafka
Connect's shapes (the configuration alone, or ``name`` and ``config``). It says less than validation
does; what it refuses, validation refuses too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from connect.config.key import Key
from connect.config.keys.connector_keys import CONNECTOR_KEYS, FRAMEWORK_KEYS, PREFIXES, TABLE_KEYS

_PLACEHOLDER = {"type": "string", "pattern": r"\$\{[^}]+\}"}
_TYPES: dict[str, list[dict[str, Any]]] = {
    "BOOLEAN": [{"type": "boolean"}, {"type": "string", "pattern": r"^\s*[TtFf][A-Za-z]{3,4}\s*$"}],
    "DOUBLE": [{"type": "number"}, {"type": "string"}],
}
_INTEGER = [{"type": "integer"}, {"type": "string", "pattern": r"^\s*[+-]?[0-9]+\s*$"}]
_TEXT = [{"type": ["string", "number", "boolean"]}]

ID = "urn:icefloe:connector"
"""Identifies the schema; it has no address of its own."""


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a connector's file."""
    keys = (*FRAMEWORK_KEYS, *CONNECTOR_KEYS)
    table_ends = "|".join(re.escape(key.name) for key in TABLE_KEYS)
    open_prefixes = [p for p in PREFIXES if p.name != "iceberg.table."]
    declared = "|".join(re.escape(key.name) for key in keys if _is_ours(key.name))
    families = "|".join(re.escape(p.name) for p in open_prefixes if _is_ours(p.name))
    known_names = rf"(?:{declared})$|(?:{families}).|iceberg\.table\..+\.(?:{table_ends})$"
    unknown = rf"^(?!{known_names})icefloe\."
    ignored = rf"^(?!{known_names})iceberg\."
    config = {
        "type": "object",
        "properties": {key.name: _property(key) for key in keys},
        "patternProperties": {
            **{
                "^" + re.escape(prefix.name) + ".": {"description": prefix.doc}
                for prefix in open_prefixes
            },
            rf"^iceberg\.table\..+\.({table_ends})$": {"type": "string"},
            unknown: False,
            # JSON Schema has no warnings; editors mark deprecated keys
            ignored: {"deprecated": True, "description": "Unknown key without effect."},
        },
        "required": ["connector.class"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "Icefloe connector",
        "$defs": {"config": config},
        "if": {"type": "object", "required": ["config"]},
        "then": {
            "properties": {
                "$schema": {"type": "string"},
                "name": {"type": "string", "minLength": 1},
                "config": {"$ref": "#/$defs/config"},
                "initial_state": {"enum": ["RUNNING", "PAUSED", "STOPPED"]},
            },
            "required": ["name", "config"],
            "additionalProperties": False,
        },
        "else": {"$ref": "#/$defs/config"},
    }


def render() -> str:
    """The file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _is_ours(name: str) -> bool:
    return name.startswith(("iceberg.", "icefloe."))


def _property(key: Key) -> dict[str, Any]:
    unit = "" if key.unit is None else f" [{key.unit}]"
    json_schema: dict[str, Any] = {"description": key.doc + unit}
    if key.java_only is not None:
        json_schema["deprecated"] = True
        json_schema["description"] += f" Without effect: {key.java_only}."
    if key.default_text is not None:
        json_schema["default"] = key.default_text
    kinds = list(_kinds(key))
    if len(kinds) > 1 or kinds != _TEXT:
        kinds.append(_PLACEHOLDER)
    return {**json_schema, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


def _kinds(key: Key) -> Iterable[dict[str, Any]]:
    if key.choices and not key.is_open:
        return [{"enum": list(key.choices)}]
    if key.type in {"INT", "LONG", "SHORT"}:
        return _INTEGER
    return _TYPES.get(key.type, _TEXT)


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201 - the document is this program's output

"""Plugins of the recorded worker that Icefloe does not have: only names and keys, for comparing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from connect.config.key import REQUIRED, Key
from connect.config.keys.framework_keys import COMMON_KEYS
from connect.validation.plugins import BUILT_IN, REGISTRY_CONVERTERS, Plugin, Plugins

_FILE = "org.apache.kafka.connect.file.FileStream"
_SMT = "org.apache.kafka.connect.transforms."
_SOURCE_GROUPS = ("Topic Creation", "Exactly Once Support", "offsets.topic")
_FIELD = (Key("field", "STRING", "", REQUIRED, "MEDIUM"),)
_KEYS: dict[str, tuple[Key, ...]] = {
    _FILE + "SinkConnector": (Key("file", "STRING", "", None, "HIGH"),),
    _FILE + "SourceConnector": (
        Key("file", "STRING", "", None, "HIGH"),
        Key("topic", "STRING", "", REQUIRED, "HIGH"),
    ),
    _SMT + "ExtractField$Value": _FIELD,
    _SMT + "HoistField$Value": _FIELD,
    _SMT + "InsertField$Value": (
        *(
            Key(name, "STRING", "", None, "MEDIUM")
            for name in (
                "topic.field",
                "partition.field",
                "offset.field",
                "timestamp.field",
                "static.field",
                "static.value",
            )
        ),
        Key("replace.null.with.default", "BOOLEAN", "", "true", "MEDIUM"),
    ),
    _SMT + "predicates.TopicNameMatches": (Key("pattern", "STRING", "", REQUIRED, "MEDIUM"),),
}


def recorded_plugins(folder: Path) -> Plugins:
    """Icefloe's plugins that a worker like the recorded one has, and that worker's others."""
    listed = _listed(folder)
    shared = Plugins(
        p
        for p in BUILT_IN.all()
        if p.class_name not in REGISTRY_CONVERTERS
        and not p.class_name.startswith(("icefloe.", "io.debezium."))
    )
    return shared + [
        Plugin(
            entry["class"],
            entry["type"],
            entry.get("version"),
            _KEYS.get(entry["class"], ()),
            task_class=entry["class"].removesuffix("Connector") + "Task",
            **(
                {"framework": COMMON_KEYS, "groups": _SOURCE_GROUPS}
                if entry["type"] == "source"
                else {}
            ),
        )
        for entry in listed
        if BUILT_IN.find(entry["class"], entry["type"]) is None
    ]


def _listed(folder: Path) -> list[dict[str, Any]]:
    for step in json.loads((folder / "plugins.json").read_text()):
        if step.get("request", {}).get("path") == "/connector-plugins?connectorsOnly=false":
            plugins: list[dict[str, Any]] = step["response"]["body"]
            return plugins
    raise AssertionError("no recorded list of plugins")

"""Recordings of what Debezium's transformations make of change events.

``python -m tests.golden.debezium_recordings`` asks Debezium's classes again, or those of
its arguments; it needs Java and the jars of the tests.

A recording has each distinct schema and result once: ``cases`` has the number of a result for each
set of options and each message.
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from connect.model.records import ConnectSchema, Header, SinkRecord
from tests.golden import debezium_events as events
from tests.golden import records_model as model

FOLDER = Path(__file__).parent / "debezium"
CLASSES: dict[str, tuple[str, tuple[events.Message, ...], tuple[events.Options, ...]]] = {
    "ExtractNewRecordState": (
        "io.debezium.transforms.ExtractNewRecordState",
        events.MESSAGES,
        events.STATE_OPTIONS,
    ),
    "ByLogicalTableRouter": (
        "io.debezium.transforms.ByLogicalTableRouter",
        (*events.MESSAGES, *events.DOCUMENTS[:2]),
        events.ROUTER_OPTIONS,
    ),
    "EventRouter": (
        "io.debezium.transforms.outbox.EventRouter",
        events.OUTBOX,
        events.OUTBOX_OPTIONS,
    ),
    "ExtractNewDocumentState": (
        "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState",
        events.DOCUMENTS,
        events.DOCUMENT_OPTIONS,
    ),
}
"""Full class name, messages and sets of options by simple class name."""
TORN = "a text with the schema of a struct or of a list"
"""The result of Debezium's outbox router where it expands a part of a text."""
_NESTED = frozenset({"struct", "array"})


@dataclass(frozen=True)
class Recording:
    """What a class did.

    Attributes:
        results: a record, None for a dropped one, or a text: the error.
        cases: numbers of results, by set of options and message.
    """

    results: tuple[SinkRecord | str | None, ...]
    cases: tuple[tuple[int, ...], ...]

    def result(self, options: int, message: int) -> SinkRecord | str | None:
        """Return the result of a message under a set of options, by their numbers."""
        return self.results[self.cases[options][message]]


@cache
def recording(name: str) -> Recording:
    """Return a recording."""
    stored = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    schemas = [model.schema_of(schema) for schema in stored["schemas"]]
    results = tuple(_result(each, schemas) for each in stored["results"])
    return Recording(results, tuple(map(tuple, stored["cases"])))


def _result(
    stored: dict[str, Any] | str | None, schemas: list[ConnectSchema | None]
) -> SinkRecord | str | None:
    if not isinstance(stored, dict):
        return stored
    schema = schemas[stored["value"]["schema"]]
    if schema is not None and type(stored["value"]["payload"]) is str and schema.type in _NESTED:
        return TORN

    def typed(side: dict[str, Any]) -> tuple[ConnectSchema | None, Any]:
        schema = schemas[side["schema"]]
        return schema, model.payload(schema, side["payload"])

    key_schema, key = typed(stored["key"])
    value_schema, value = typed(stored["value"])
    headers = [(name, *typed(side)) for name, side in stored["headers"]]
    return SinkRecord(
        stored["topic"],
        0,
        0,
        stored.get("timestamp", 0),
        key,
        key_schema,
        value,
        value_schema,
        tuple(Header(name, held, schema) for name, schema, held in headers),
    )


class _Writer:
    def __init__(self) -> None:
        self.schemas: dict[str, int] = {}
        self.results: dict[str, int] = {}

    def number(self, answer: dict[str, Any]) -> int:
        """Return the number of an answer of Java."""
        result: Any = answer.get("record")
        if "error" in answer:
            result = f"{answer['error']['class']}: {answer['error']['message']}"
        elif result is not None:
            sides = {name: self._side(result, result[name]) for name in ("key", "value")}
            headers = [
                (h["key"], {"schema": self._schema(h["schema"]), "payload": h["value"]})
                for h in result["headers"]
            ]
            timestamp = {} if result["timestamp"] == 0 else {"timestamp": result["timestamp"]}
            result = {"topic": result["topic"], "headers": headers, **timestamp, **sides}
        return self.results.setdefault(json.dumps(result), len(self.results))

    def _side(self, record: dict[str, Any], side: Any) -> dict[str, Any]:
        if record["schemas"] and side is not None:
            return {"schema": self._schema(side["schema"]), "payload": side["payload"]}
        return {"schema": self._schema(None), "payload": side}

    def _schema(self, schema: Any) -> int:
        return self.schemas.setdefault(json.dumps(schema), len(self.schemas))


def record(name: str) -> None:
    """Ask Debezium's class, and store what it does."""
    from tests.support.java_records import RecordOracle

    class_name, messages, option_sets = CLASSES[name]
    asked = [
        {
            "transform": class_name,
            "config": options,
            "converter": {"schemas.enable": "true"},
            "messages": list(messages),
        }
        for options in option_sets
    ]
    writer = _Writer()
    cases = []
    for answer in RecordOracle().ask([("messages", each) for each in asked]):
        assert "error" not in answer, answer
        cases.append([writer.number(each) for each in answer["records"]])
    stored = {
        "schemas": [json.loads(schema) for schema in writer.schemas],
        "results": [json.loads(result) for result in writer.results],
        "cases": cases,
    }
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(stored, separators=(",", ":"))
    (FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    for each in sys.argv[1:] or CLASSES:
        record(each)

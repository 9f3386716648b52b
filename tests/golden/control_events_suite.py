"""The recordings of Iceberg's own classes against our codec.

``run()`` is used by ``make golden`` and by ``test_control_events.py``; ``GOLDEN_EVENTS_DIR`` names
another folder of recordings of the same form, with or without ``variants/``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from connect.cli.control_command import event_to_json
from control_schemas.codec import MalformedEvent, UnencodableEvent, decode, encode
from tests.support.event_from_json import event_from_json

NAME = "control-events"


class Rule(NamedTuple):
    """Where we differ from Java's reader on purpose.

    ``ours`` is our verdict, and Java's is the other one. ``pattern`` matches the error text of the
    reader that refused the event.
    """

    ours: str
    pattern: str
    why: str


# docs/decisions/0002-control-event-reader.md
RULES = (
    Rule("accepted", r"Unknown field ordinal", "additional fields are passed over"),
    Rule("accepted", r"Cannot find projected field", "additional fields of a file that are null"),
    Rule("refused", r"event type \d+ with payload", "type and payload contradict each other"),
    Rule(
        "refused",
        r"Generic(Data|Delete)File has no|negative count or size",
        "a manifest cannot hold a file of unknown size or count",
    ),
)


class Result(NamedTuple):
    """One comparison: ``agreed``, ``by rule`` or ``failing``, and what was seen."""

    case: str
    verdict: str
    detail: str = ""


def recordings() -> Path:
    """The folder of the recordings."""
    return Path(os.environ.get("GOLDEN_EVENTS_DIR") or Path(__file__).with_name("control_events"))


def cases() -> list[tuple[str, Callable[[], Result]]]:
    """Every comparison, by name: decode and encode per recording, decode per variant."""
    folder = recordings()
    named_cases: list[tuple[str, Callable[[], Result]]] = []
    for path in sorted(folder.glob("*.json")):
        named_cases.append((f"decode {path.stem}", partial(_decoded, path)))
        named_cases.append((f"encode {path.stem}", partial(_encoded, path)))
    table = folder / "variants" / "variants.json"
    entries = json.loads(table.read_text()) if table.exists() else ()
    named_cases.extend(
        (f"variant {entry['file']}", partial(_variant, folder, entry)) for entry in entries
    )
    return named_cases


def run() -> tuple[int, int, list[Result]]:
    """Compare everything.

    Returns:
        How many agree, how many differ by rule, and those that fail.
    """
    results = [compare() for _, compare in cases()]
    counts = {
        verdict: sum(result.verdict == verdict for result in results)
        for verdict in ("agreed", "by rule")
    }
    failing = [result for result in results if result.verdict == "failing"]
    return counts["agreed"], counts["by rule"], failing


def with_spec_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a recording with the spec's own names, as a writer would name the fields.

    Java's reader shows partition fields by their rewritten names.
    """
    event: dict[str, Any] = json.loads(json.dumps(document["event"]))
    spec = document.get("partition_spec") or {"fields": []}
    names = {field["field-id"]: field["name"] for field in spec["fields"]}
    for key in ("data_files", "delete_files"):
        for file in event["payload"].get(key) or ():
            for field in file["partition"]:
                field["name"] = names[field["field_id"]]
    return event


def _decoded(path: Path) -> Result:
    case = f"decode {path.stem}"
    want = json.loads(path.read_text())["event"]
    try:
        got = event_to_json(decode(path.with_suffix(".bin").read_bytes()))
    except MalformedEvent as error:
        return Result(case, "failing", str(error))
    if got == want:
        return Result(case, "agreed")
    return Result(case, "failing", f"want {want}, got {got}")


def _encoded(path: Path) -> Result:
    case = f"encode {path.stem}"
    want = path.with_suffix(".bin").read_bytes()
    try:
        got = encode(event_from_json(with_spec_names(json.loads(path.read_text()))))
    except UnencodableEvent as error:
        return Result(case, "failing", str(error))
    if got == want:
        return Result(case, "agreed")
    at = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), len(got))
    return Result(case, "failing", f"{len(got)} bytes, want {len(want)}, first difference at {at}")


def _variant(folder: Path, entry: Mapping[str, Any]) -> Result:
    case = f"variant {entry['file']}"
    got: Any = None
    try:
        got = event_to_json(decode((folder / "variants" / entry["file"]).read_bytes()))
        verdict, detail = "accepted", ""
    except MalformedEvent as error:
        verdict, detail = "refused", str(error)
    if verdict != entry["java_1_12_0"]:
        message = detail or entry["error"]
        for rule in RULES:
            if verdict == rule.ours and re.search(rule.pattern, message):
                return Result(case, "by rule", rule.why)
        return Result(case, "failing", f"{verdict}, other than Java: {message}")
    if got != entry.get("event"):
        return Result(case, "failing", f"want {entry['event']}, got {got}")
    return Result(case, "agreed", detail)


if __name__ == "__main__":
    agreed, by_rule, failures = run()
    print(f"golden {NAME}: agreed {agreed}, by rule {by_rule}, failing {len(failures)}")
    for failure in failures:
        print(f"  {failure.case}: {failure.detail[:2000]}")
    raise SystemExit(1 if failures else 0)

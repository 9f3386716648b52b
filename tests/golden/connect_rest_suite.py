"""The recorded REST answers of Kafka Connect against our API.

``run()`` is used by ``make golden`` and by ``test_connect_rest.py``; ``GOLDEN_REST_DIR`` names
another folder of recordings of the same form. What differs on purpose is in
``connect_rest_rules.py``, explained in docs/reference/rest-differences.md.
"""

from __future__ import annotations

import copy
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.connect_rest_rules import RULES, Pair
from tests.golden.connect_rest_targets import FakeTarget, Target
from tests.support.fakes.rest_server import Reply
from tests.support.pauses import growing_pauses

NAME = "connect-rest"
GROUPS = (
    "http",
    "create",
    "config",
    "read",
    "lifecycle",
    "validate",
    "plugins",
    "iceberg",
    "loggers",
    "topics",
    "offsets",
    "second-worker",
)
MORE = Path(__file__).with_name("connect_rest_more")
"""What the same version answered to requests beyond the recordings; same form."""
_IGNORED_HEADERS = {"date", "server", "warning"}  # Kafka Connect sends no warnings


class Result(NamedTuple):
    """One comparison: ``agreed``, ``by rule`` or ``failing``, and the rules or what was seen."""

    case: str
    verdict: str
    detail: str = ""


def recordings() -> Path:
    """The folder of the recordings."""
    return Path(os.environ.get("GOLDEN_REST_DIR") or Path(__file__).with_name("connect_rest"))


def recordings_beyond() -> list[str]:
    """The groups that have answers beyond the recordings."""
    return [group for group in GROUPS if (MORE / f"{group}.json").exists()]


def run() -> tuple[int, int, list[Result]]:
    """Replay every group; count agreements and differences by rule, list the others."""
    results = [result for group in GROUPS for result in replay(group)]
    agreed = sum(result.verdict == "agreed" for result in results)
    by_rule = sum(result.verdict == "by rule" for result in results)
    return agreed, by_rule, [r for r in results if r.verdict == "failing"]


def replay(
    group: str, target: Target | None = None, *, recorded: Path | None = None
) -> list[Result]:
    """Replay one group, by default against the API over a herder of its own.

    Args:
        group: one of ``GROUPS``.
        target: what answers.
        recorded: the folder of the recordings; ``recordings()`` if None.
    """
    path = (recorded or recordings()) / f"{group}.json"
    if not path.exists():
        return []
    steps = json.loads(path.read_text())
    if target is not None:
        return list(_replay(group, steps, target))
    folder = Path(__file__).with_name("connect_rest")
    with FakeTarget(folder, is_second=group == "second-worker") as own:
        return list(_replay(group, steps, own))


def _replay(group: str, steps: list[dict[str, Any]], target: Target) -> Iterator[Result]:
    if group == "offsets":  # recorded where the same steps had run before
        target.had_offsets("connect-o-one", "t-off", {0: 5, 1: 3})
    offsets: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(steps):
        if "do" in step:
            target.do(step["do"])
        elif "wait" in step:
            _wait(step["wait"], target)
        else:
            case = f"{group}/{number} {step['scenario']}: {step['name']}"
            reply = _send(step["request"], target)
            kept = _kept(offsets, step["request"], reply)
            yield _compare(case, step, reply, target.worker, kept)


def _wait(wait: Mapping[str, Any], target: Target) -> None:
    """Wait as the recorder did; a state that never comes shows in the comparison that follows."""
    deadline, pauses = time.monotonic() + target.wait_s, growing_pauses()
    while time.monotonic() < deadline:
        reply = target.send("GET", wait["path"])
        answer = {"status": reply.status, "body": _json(reply)}
        if all(_at(answer, p) == value for p, value in wait["until"].items()):
            return
        next(pauses)


def _send(request: Mapping[str, Any], target: Target) -> Reply:
    headers = dict(request.get("headers") or {})
    body: bytes | None = None
    if "raw_body" in request:
        body = str(_expanded(request["raw_body"])).encode()
    elif "body" in request:
        body = json.dumps(_expanded(request["body"]), separators=(",", ":")).encode()
        headers = {"content-type": "application/json", **headers}
    return target.send(request["method"], request["path"], body, headers)


def _expanded(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"repeat", "times"}:
            return value["repeat"] * value["times"]
        return {k: _expanded(v) for k, v in value.items()}
    return [_expanded(v) for v in value] if isinstance(value, list) else value


def _json(reply: Reply) -> Any:
    try:
        return json.loads(reply.content)
    except ValueError:
        return None


def _ours(reply: Reply, theirs: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.lower(): name for name in theirs["headers"]}
    headers = {
        names.get(name, name): value
        for name, value in reply.headers.items()
        if name not in _IGNORED_HEADERS
    }
    answer: dict[str, Any] = {"status": reply.status, "headers": headers}
    if not reply.content:
        answer["body"] = None
    elif (parsed := _json(reply)) is not None:
        answer["body"] = parsed
    else:
        answer["text"] = reply.content.decode()
    return answer


def _kept(
    offsets: dict[str, dict[str, Any]], request: Mapping[str, Any], reply: Reply
) -> dict[str, Any] | None:
    """The offsets of a connector as every accepted change of them left them.

    Args:
        offsets: by path of the connector's offsets; brought up to date.
        request: one of any kind.
        reply: our answer to it.

    Returns:
        What a GET must show, None when changes of these offsets were not seen yet.
    """
    path, method = request["path"].rstrip("/"), request["method"]
    if not path.endswith("/offsets"):
        return offsets.clear()  # tasks may run again
    before, body = offsets.get(path), _json(reply)
    if method == "GET" and reply.status == 200:
        offsets[path] = {_place(entry): entry for entry in body["offsets"]}
    elif method == "DELETE" and reply.status == 200:
        offsets[path] = {}
    elif method == "PATCH" and reply.status == 200 and before is not None:
        for entry in request["body"]["offsets"]:
            before[_place(entry)] = entry
    if before is None:
        return None
    left = [entry for entry in before.values() if entry.get("offset") is not None]
    return {"offsets": sorted(left, key=json.dumps)}


def _place(entry: Mapping[str, Any]) -> str:
    partition = entry["partition"]
    return f"{partition['kafka_topic']} {partition['kafka_partition']}"


def _compare(
    case: str, step: Mapping[str, Any], reply: Reply, worker: str, kept: dict[str, Any] | None
) -> Result:
    theirs = copy.deepcopy(step["response"])
    theirs.setdefault("headers", {})
    if "body" not in theirs and "text" not in theirs:
        theirs["body"] = None
    ours = _ours(reply, theirs)
    _soften(theirs, ours, step)
    recorded = theirs["headers"].get("Location", "")
    if "{worker}" in recorded:
        theirs["headers"]["Location"] = recorded.replace("{worker}", worker)
    if theirs == ours:
        return Result(case, "agreed")
    pair = Pair(step, theirs, ours, kept)
    used = []
    for rule in RULES:
        if rule.apply(pair):
            used.append(rule.name)
            pair.drop_lengths()
            if pair.theirs == pair.ours:
                return Result(case, "by rule", ", ".join(used))
    return Result(case, "failing", _difference(pair))


def _soften(theirs: dict[str, Any], ours: dict[str, Any], step: Mapping[str, Any]) -> None:
    """Remove volatile values of the recording, and sort lists without a guaranteed order."""
    for pointer in step.get("volatile", ()):
        _replace(theirs, pointer)
        _replace(ours, pointer)
    for answer in (theirs, ours):
        body = answer.get("body")
        _no_documentation(body)
        path = step["request"]["path"].partition("?")[0].rstrip("/")
        if isinstance(body, list) and path == "/connectors":
            body.sort()
        if isinstance(body, dict) and path.endswith("/offsets") and "offsets" in body:
            body["offsets"].sort(key=json.dumps)
    body = ours.get("body")
    if step.get("reduced") == "configs" and isinstance(body, dict) and "configs" in body:
        kept = {*step["request"]["body"]}
        body["configs"] = [
            entry
            for entry in body["configs"]
            if entry["value"]["errors"] or entry["value"]["name"] in kept
        ]
    for answer in (theirs, ours):
        methods = answer["headers"].get("Access-Control-Allow-Methods")
        if methods:
            answer["headers"]["Access-Control-Allow-Methods"] = sorted(methods.split(","))


def _no_documentation(value: Any) -> None:
    if isinstance(value, dict):
        if "documentation" in value:
            value["documentation"] = "<documentation>"
        for item in value.values():
            _no_documentation(item)
    elif isinstance(value, list):
        for item in value:
            _no_documentation(item)


def _steps(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(value: Any, pointer: str) -> Any:
    for part in _steps(pointer):
        if part == "#":
            return len(value) if isinstance(value, list) else None
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def _replace(value: Any, pointer: str) -> None:
    *parents, last = _steps(pointer)
    holder = _at(value, "".join(f"/{p.replace('~', '~0').replace('/', '~1')}" for p in parents))
    if isinstance(holder, dict) and last in holder:
        holder[last] = "<volatile>"
    elif isinstance(holder, list) and re.fullmatch("[0-9]+", last) and int(last) < len(holder):
        holder[int(last)] = "<volatile>"


def _difference(pair: Pair) -> str:
    return f"theirs {json.dumps(pair.theirs)}\n ours   {json.dumps(pair.ours)}"


if __name__ == "__main__":
    for result in (r for g in GROUPS for r in replay(g)):
        if result.verdict != "agreed":
            print(result.verdict, result.case, "\n ", result.detail)
    print(run()[:2])

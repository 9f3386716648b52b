"""Where our answers differ from the recorded ones on purpose.

docs/reference/rest-differences.md says why.

A rule is about a kind of answer, never about one recorded case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from connect.config.keys.connector_keys import CONNECTOR_KEYS
from connect.config.masking import Masker
from connect.config.placeholders import Placeholder, replaced

OURS = ("icefloe.", "io.confluent.")  # classes that the recorded worker did not have
ICEBERG = "org.apache.iceberg.connect.IcebergSinkConnector"
SECRETS = {"out": "sink-out.txt", "password": "hunter2", "ntasks": "2"}
"""What the recorded worker's ``secrets.properties`` held."""


@dataclass
class Pair:
    """A recorded answer and ours; rules change both until they are equal or give up.

    Attributes:
        step: the recorded step.
        theirs: its answer.
        ours: our answer.
        kept: the connector's offsets as our own answers to changes left them; None if unknown.
    """

    step: Mapping[str, Any]
    theirs: dict[str, Any]
    ours: dict[str, Any]
    kept: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        """Path of the request, without query and trailing slash."""
        return str(self.step["request"]["path"]).partition("?")[0].rstrip("/")

    @property
    def sent(self) -> dict[str, Any]:
        """The configuration in the request, if there is one."""
        body = self.step["request"].get("body")
        if not isinstance(body, dict):
            return {}
        config = body.get("config", body)
        return config if isinstance(config, dict) else {}

    @property
    def statuses(self) -> tuple[int, int]:
        """Recorded status and ours."""
        return self.theirs["status"], self.ours["status"]

    def error(self, answer: dict[str, Any]) -> str:
        """The message of an error answer; empty for others."""
        body = answer.get("body")
        return str(body.get("message", "")) if isinstance(body, dict) else ""

    def drop_lengths(self) -> None:
        """Once a body differs on purpose, its length does too."""
        for answer in (self.theirs, self.ours):
            answer["headers"].pop("Content-Length", None)
            answer["headers"].pop("content-length", None)

    def settle(self) -> bool:
        """The rule explains the whole difference."""
        self.theirs = self.ours
        return True


class Rule(NamedTuple):
    """``apply`` says whether it had a part in the difference."""

    name: str
    apply: Callable[[Pair], bool]


def _chunked(pair: Pair) -> bool:
    return pair.theirs["headers"].pop("Transfer-Encoding", None) is not None


def _order(pair: Pair) -> bool:
    return _without(pair.ours.get("body"), "order")


def _without(value: Any, field: str) -> bool:
    if isinstance(value, list):
        return sum(_without(item, field) for item in value) > 0  # all of them, not up to one
    if not isinstance(value, dict):
        return False
    had_field = "order_in_group" in value and value.pop(field, None) is not None
    return sum(_without(item, field) for item in value.values()) > 0 or had_field


def _bad_input_is_400(pair: Pair) -> bool:
    is_error_body = isinstance(pair.ours.get("body"), dict) and bool(pair.error(pair.ours))
    is_jetty = pair.theirs.get("html") or "Cache-Control" in pair.theirs["headers"]
    if pair.ours["status"] not in {400, 404} or not is_error_body:
        return False
    return pair.settle() if pair.theirs["status"] == 500 or is_jetty else False


def _bad_override(pair: Pair) -> bool:
    has_override = any(".override." in name for name in pair.sent)
    body = pair.ours.get("body")
    if not has_override or not isinstance(body, dict):
        return False
    names = {
        entry["value"]["name"] for entry in body.get("configs", ()) if entry["value"]["errors"]
    }
    return pair.settle() if names and all(".override." in name for name in names) else False


def _no_unreachable_names(pair: Pair) -> bool:
    body = pair.step["request"].get("body")
    name = body.get("name", "") if isinstance(body, dict) else ""
    if re.search(r"[/\\%{}]", str(name)):
        return pair.settle() if pair.ours["status"] == 400 else False
    if re.search(r"%7B|%7D", pair.path):  # asking for one that Kafka made all the same
        return pair.settle() if pair.ours["status"] == 404 else False
    lists = (pair.theirs.get("body"), pair.ours.get("body"))
    if _without_errors(pair, lambda _, text: "the REST API cannot address" in text):
        return True
    if pair.path == "/connectors" and all(isinstance(names, list) for names in lists):
        theirs = [n for n in pair.theirs["body"] if not re.search(r"[/\\%{}]", n)]
        is_shorter = theirs != pair.theirs["body"]
        pair.theirs["body"] = theirs
        return is_shorter
    return False


def _patch_keeps_the_name(pair: Pair) -> bool:
    if pair.step["request"]["method"] == "PATCH" and pair.sent.get("name"):
        return pair.settle() if pair.ours["status"] == 400 else False
    if "patch" in pair.step["scenario"] and pair.path.endswith("/config"):
        body = pair.theirs.get("body")
        if isinstance(body, dict) and "name" in body and pair.theirs["status"] == 200:
            body["name"] = pair.ours["body"].get("name")
            return True
    return False


def _iceberg_is_validated_at_creation(pair: Pair) -> bool:
    if pair.sent.get("connector.class") != ICEBERG:
        return False
    if pair.statuses == (201, 400):
        return pair.settle()
    body = pair.ours.get("body")
    if not isinstance(body, dict) or "configs" not in body:
        return False
    errors = [
        (entry["value"]["name"], text)
        for entry in body["configs"]
        for text in entry["value"]["errors"]
    ]
    own = re.compile("Unknown configuration|Must specify|Cannot specify both|a table is named")
    if not any(own.match(text) or "a table is named" in text for _, text in errors):
        return False
    return pair.settle()


def _predicates_are_listed(pair: Pair) -> bool:
    return _without_errors(pair, lambda _, text: text.endswith("predicates does not list it"))


def _transformations_are_validated(pair: Pair) -> bool:
    """What a class that is there says of its configuration when it is made."""
    of_others = "could not be found|not found that matches|Config '|does not implement|abstract"

    def is_own(name: str, text: str) -> bool:
        is_whole = name.startswith("transforms.") and name.endswith((".type", ".format"))
        return is_whole and re.search(of_others, text) is None

    return _without_errors(pair, is_own)


def _without_errors(pair: Pair, is_own: Callable[[str, str], bool]) -> bool:
    """Leave sentences out of our answer that the recorded one lacks; whether there were any."""
    ours, theirs = pair.ours.get("body"), pair.theirs.get("body")
    if not all(isinstance(body, dict) and "configs" in body for body in (ours, theirs)):
        return False
    known = {entry["value"]["name"]: entry["value"]["errors"] for entry in theirs["configs"]}
    count = 0
    for entry in ours["configs"]:
        name, errors = entry["value"]["name"], entry["value"]["errors"]
        reported = known.get(name, ())
        entry["value"]["errors"] = [t for t in errors if t in reported or not is_own(name, t)]
        count += len(errors) - len(entry["value"]["errors"])
    ours["error_count"] -= count
    return count > 0


@cache
def _java_keys() -> frozenset[str]:
    recorded = Path(__file__).with_name("connect_rest") / "iceberg-sink-config.json"
    return frozenset(json.loads(recorded.read_text())["plugin_config_order"])


def _own_keys(pair: Pair) -> bool:
    """Kafka's sink passes over what it does not know; ours knows more keys, and shows them."""
    body = pair.ours.get("body")
    if not isinstance(body, dict) or "configs" not in body:
        return False
    own = {key.name for key in CONNECTOR_KEYS} - _java_keys()
    kept = [entry for entry in body["configs"] if entry["value"]["name"] not in own]
    is_shorter = len(kept) < len(body["configs"])
    body["configs"] = kept
    return is_shorter


def _refused_connector_is_not_there(pair: Pair) -> bool:
    is_iceberg = pair.step["scenario"].startswith("iceberg")
    return pair.settle() if is_iceberg and pair.ours["status"] == 404 else False


def _iceberg_tasks(pair: Pair) -> bool:
    is_status = pair.step["scenario"].startswith("iceberg") and pair.path.endswith("/status")
    return pair.settle() if is_status and pair.statuses == (200, 200) else False


def _task_configurations(pair: Pair) -> bool:
    """Partitions are dealt by the herder, and the class is always the sink's."""
    ours, theirs = pair.ours.get("body"), pair.theirs.get("body")
    if not pair.path.endswith("/tasks") or not isinstance(ours, list):
        return False
    own = {"icefloe.layout", "icefloe.partitions", "task.id", "task.class"}
    for body in (ours, theirs or []):
        for task in body:
            task["config"] = {k: v for k, v in task["config"].items() if k not in own}
    return True


def _own_build(pair: Pair) -> bool:
    is_root = pair.step["request"]["method"] == "HEAD" and not pair.path
    return pair.statuses == (200, 200) if is_root else False


def _own_loggers(pair: Pair) -> bool:
    body = pair.ours.get("body")
    if pair.path != "/admin/loggers" or not isinstance(body, dict):
        return False
    shape = {"level", "last_modified"}
    return pair.settle() if all(set(entry) == shape for entry in body.values()) else False


def _own_plugins(pair: Pair) -> bool:
    if pair.step["request"]["method"] == "HEAD" and pair.path == "/connector-plugins":
        return pair.statuses == (200, 200)
    if _without_ours(pair.ours.get("body")):
        pair.drop_lengths()
        return True
    return False


def _without_ours(value: Any) -> bool:
    """Take classes that only we have out of lists; whether there were any."""
    if isinstance(value, dict):
        return sum(_without_ours(inner) for inner in value.values()) > 0
    if not isinstance(value, list):
        return False
    count = len(value)
    value[:] = [
        item
        for item in value
        if not str(item.get("class", "") if isinstance(item, dict) else item).startswith(OURS)
    ]
    return sum(_without_ours(inner) for inner in value) > 0 or len(value) < count


def _metrics(pair: Pair) -> bool:
    return pair.settle() if pair.path == "/metrics" and pair.ours["status"] == 200 else False


def _own_sentences(pair: Pair) -> bool:
    """Java's regex engine, Java's classes, HashMap order, a sentence said twice."""
    theirs, ours = pair.error(pair.theirs), pair.error(pair.ours)
    if pair.statuses == (200, 200):
        return _same_regexes(pair)
    if pair.statuses != (400, 400) or not ours:
        return False
    kinds = (
        ("Invalid regex", "Invalid regex"),
        ("does not implement", "could not be found"),
        ("This class is abstract", "could not be found"),
        ("contains no connector type", "contains no connector type"),
        ("not found that matches the version", "not found that matches the version"),
    )
    return pair.settle() if any(a in theirs and b in ours for a, b in kinds) else False


def _same_regexes(pair: Pair) -> bool:
    has_shortened = False
    for answer in (pair.theirs, pair.ours):
        body = answer.get("body")
        for entry in body.get("configs", ()) if isinstance(body, dict) else ():
            errors = entry["value"]["errors"]
            short = [re.sub("(?s)(Invalid regex): .*", r"\1", text) for text in errors]
            has_shortened |= short != errors
            entry["value"]["errors"] = short
    return has_shortened


def _framework_offsets(pair: Pair) -> bool:
    """The sink's answer is that of a connector that does not manage its own offsets."""
    theirs, ours = pair.error(pair.theirs), pair.error(pair.ours)
    is_success = pair.statuses == (200, 200) and pair.path.endswith("/offsets")
    return (
        pair.settle()
        if is_success and "successfully" in theirs and "successfully" in ours
        else False
    )


def _resolved(text: str) -> str:
    """What Kafka's file provider makes of a text: placeholders of unknown keys stay."""

    def replacement(placeholder: Placeholder) -> str:
        is_known = placeholder.path.endswith("secrets.properties")
        return SECRETS.get(placeholder.key, placeholder.text) if is_known else placeholder.text

    return replaced(text, replacement)


def _placeholders_stay(pair: Pair) -> bool:
    """Kafka shows what placeholders resolve to, in values, in names and within sentences."""
    sent = {name: text for name, text in pair.sent.items() if isinstance(text, str)}
    if not any(_resolved(text) != text for text in sent.values()):
        return False
    mask = Masker(sent, _resolved)
    for answer in (pair.theirs, pair.ours):
        body = answer.get("body")
        for entry in body.get("configs", ()) if isinstance(body, dict) else ():
            value, definition = entry["value"], entry["definition"] or {}
            given = sent.get(value["name"], "")
            if value["value"] is not None:
                value["value"] = given if _resolved(given) != given else mask(value["value"])
            value["name"] = mask.name(value["name"])
            value["errors"] = [mask(text) for text in value["errors"]]
            names = {k: definition.get(k) for k in ("name", "group", "display_name")}
            definition |= {k: mask.name(text) for k, text in names.items() if text}
        if isinstance(body, dict) and "groups" in body:
            body["groups"] = [mask.name(text) for text in body["groups"]]
    return True


def _placeholders_resolve(pair: Pair) -> bool:
    """One that names nothing is an error at its key: no task could start with it."""
    body = pair.ours.get("body")
    entries = body.get("configs", ()) if isinstance(body, dict) else ()
    is_own = any("cannot be resolved" in t for entry in entries for t in entry["value"]["errors"])
    if is_own and pair.statuses == (500, 200):
        return pair.settle() if "Could not read" in pair.error(pair.theirs) else False
    return _without_errors(pair, lambda _, text: "cannot be resolved" in text)


def _changes_are_whole(pair: Pair) -> bool:
    """Kafka refuses a change of offsets, and has made the part of it that could be made."""
    if not pair.path.endswith("/offsets") or pair.step["request"]["method"] != "GET":
        return False
    return pair.settle() if pair.kept is not None and pair.ours["body"] == pair.kept else False


def _missing_offsets_are_deleted(pair: Pair) -> bool:
    """A request to delete the offset of a missing partition succeeds."""
    body = pair.step["request"].get("body")
    if not pair.path.endswith("/offsets") or pair.statuses != (500, 200):
        return False
    entries = body.get("offsets", ()) if isinstance(body, dict) else ()
    return pair.settle() if all(e.get("offset") is None for e in entries) else False


RULES: tuple[Rule, ...] = (
    Rule("placeholders stay as they were sent", _placeholders_stay),
    Rule("a placeholder that cannot be resolved is an error", _placeholders_resolve),
    Rule("bad input is 400", _bad_input_is_400),
    Rule("content length instead of chunks", _chunked),
    Rule("both order and order_in_group", _order),
    Rule("a refused change of offsets changes nothing", _changes_are_whole),
    Rule("deleting a missing offset succeeds", _missing_offsets_are_deleted),
    Rule("bad overrides are errors of the configuration", _bad_override),
    Rule("no names that cannot be addressed", _no_unreachable_names),
    Rule("PATCH keeps the name", _patch_keeps_the_name),
    Rule("the sink is validated before it is created", _iceberg_is_validated_at_creation),
    Rule("a predicate that is not listed is an error", _predicates_are_listed),
    Rule("a transformation validates its configuration", _transformations_are_validated),
    Rule("keys of Icefloe", _own_keys),
    Rule("the sink is validated before it is created", _refused_connector_is_not_there),
    Rule("states of the sink's tasks are not compared", _iceberg_tasks),
    Rule("task configurations say what they read", _task_configurations),
    Rule("the build is Icefloe's", _own_build),
    Rule("loggers are Icefloe's", _own_loggers),
    Rule("plugins are Icefloe's", _own_plugins),
    Rule("/metrics exists", _metrics),
    Rule("messages do not mention Java", _own_sentences),
    Rule("offsets of sinks", _framework_offsets),
)

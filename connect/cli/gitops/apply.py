"""Applies a plan to a node and waits until its connectors run.

Rules of this file:
- The node validates every configuration first. If one is invalid, nothing is applied. Without a
  wait, this contacts no broker and no catalog, so that their outage does not block a change.
- Applying is idempotent: after an interruption, apply the same files again.
- A connector runs when each of its tasks has answered a round with the present configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connect.cli.gitops.connector_files import DesiredConnector
from connect.cli.gitops.plan import Action, ApplyPlan, config_to_send, make_plan
from connect.cli.rest_client import NodeClient, RefusedError
from connect.clock import SystemClock
from connect.errors import ExitStatus, IcefloeError, RetriableError

TRIES_MAX = 10
TRY_PAUSE_MS = 1_000
POLL_MS = 500
FAILED_MS = 5_000
"""A connector that is FAILED for so long has failed; a state before a change lasts less."""
_CONFLICT = 409
_NOT_FOUND = 404
_NOT_VALID = frozenset({400, _NOT_FOUND})
"""HTTP statuses of a configuration that the node cannot validate at all."""


class NotReadyError(IcefloeError):
    """Some connectors have not reached their target state."""

    default_code = "not_ready"
    exit_status = ExitStatus.NO


def actual(client: NodeClient) -> dict[str, Mapping[str, str]]:
    """Return the configurations of all connectors of a node, by name."""
    listed = client.ask("GET", "connectors", expand="info")
    return {name: entry["info"]["config"] for name, entry in listed.items()}


def compare(
    client: NodeClient, desired: Sequence[DesiredConnector], *, owner: str, prune: bool
) -> ApplyPlan:
    """Return the changes that the files require; raises the errors of ``make_plan``."""
    return make_plan(desired, actual(client), owner=owner, prune=prune)


@dataclass(slots=True)
class Findings:
    """Errors and warnings about connectors in files, a sentence each, with file and connector."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def findings(
    client: NodeClient, desired: Iterable[DesiredConnector], *, is_remote: bool
) -> Findings:
    """Let the node validate connectors.

    Args:
        client: of the node.
        desired: connectors.
        is_remote: whether the node also checks brokers and catalogs.

    Raises:
        RefusedError: the node does not validate for this caller, or cannot at present.
    """
    result = Findings()
    query = {"icefloe.remote": str(is_remote).lower()}
    for item in desired:
        plugin = item.config["connector.class"].strip()
        try:
            path = ("connector-plugins", plugin, "config", "validate")
            answer, warnings = client.ask_with_warnings(
                "PUT", *path, json=dict(item.config), **query
            )
        except RefusedError as e:
            if e.status not in _NOT_VALID:
                raise
            result.errors.append(f"{item.source}: {item.name}: {e.message}")
            continue
        result.warnings.extend(f"{item.source}: {item.name}: {text}" for text in warnings)
        for entry in answer["configs"]:
            value = entry["value"]
            result.errors.extend(
                f"{item.source}: {item.name}: {value['name']}: {sentence}"
                for sentence in distinct(value["name"], value["errors"])
            )
    return result


def distinct(key: str, sentences: Iterable[str]) -> list[str]:
    """Return the errors of a key, without what Kafka adds to a value of a wrong type."""
    listed = list(sentences)
    added = f"Invalid value null for configuration {key}: "
    return [text for text in listed if len(listed) == 1 or not text.startswith(added)]


def apply_plan(
    client: NodeClient,
    plan: ApplyPlan,
    clock: SystemClock,
    *,
    owner: str,
    on_progress: Callable[[int], None],
) -> None:
    """Apply the actions of a plan, in order.

    Args:
        client: of the node.
        plan: the actions.
        clock: for pauses between attempts.
        owner: value of ``icefloe.owner`` in each applied configuration.
        on_progress: receives the number of applied actions.

    Raises:
        RefusedError: the node refuses an action. The actions before it stay applied; the
            later ones are not applied.
    """
    for number, action in enumerate(plan.pending, 1):
        for attempt in range(TRIES_MAX):
            try:
                _apply_action(client, action, owner)
            except RefusedError as e:
                if e.status != _CONFLICT or attempt == TRIES_MAX - 1:
                    e.message = f"{action.kind} {action.name}: {e.message}"
                    raise
                clock.sleep_ms(TRY_PAUSE_MS)  # another change of this connector is in progress
            else:
                break
        on_progress(number)


def _apply_action(client: NodeClient, action: Action, owner: str) -> None:
    if action.kind == "prune":
        try:
            client.ask("DELETE", "connectors", action.name)
        except RefusedError as e:
            if e.status != _NOT_FOUND:
                raise
        return
    config = config_to_send(action, owner)
    state = action.desired.initial_state if action.desired else None
    if action.kind == "create" and state is not None:
        body = {"name": action.name, "config": config, "initial_state": state}
        client.ask("POST", "connectors", json=body)
    else:
        client.ask("PUT", "connectors", action.name, "config", json=config)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a connector is.

    Attributes:
        state: in lower case, with ``not ready`` and ``failed`` among them.
        reason: why it is not in its target state; None if it is.
    """

    state: str
    reason: str | None = None


def wait_until_running(
    client: NodeClient,
    names: Mapping[str, str | None],
    clock: SystemClock,
    *,
    timeout_ms: int,
    on_progress: Callable[[Mapping[str, Progress]], None],
) -> None:
    """Wait until connectors are in their target state, and their tasks have read.

    Args:
        client: of the node.
        names: connectors with their initial state; None stands for RUNNING.
        clock: for the pauses between polls.
        timeout_ms: limit for all connectors together.
        on_progress: receives the progress of each connector.

    Raises:
        NotReadyError: a connector has failed, or the timeout has passed; the message has the
            reason of each connector that is not in its target state.
    """
    start_ms = clock.monotonic_ms()
    failing_since_ms: dict[str, int] = {}
    while True:
        progress = {name: _progress(client, name, target) for name, target in names.items()}
        now_ms = clock.monotonic_ms()
        on_progress(progress)
        reasons = [f"{n}: {p.reason}" for n, p in sorted(progress.items()) if p.reason is not None]
        if not reasons:
            return
        failing_since_ms = {
            name: failing_since_ms.get(name, now_ms)
            for name, each in progress.items()
            if each.state == "failed"
        }
        if any(now_ms - since_ms >= FAILED_MS for since_ms in failing_since_ms.values()):
            raise NotReadyError("; ".join(reasons))
        if now_ms - start_ms >= timeout_ms:
            raise NotReadyError(f"after {timeout_ms / 1000:.0f} s: {'; '.join(reasons)}")
        clock.sleep_ms(POLL_MS)


def _progress(client: NodeClient, name: str, target: str | None) -> Progress:
    try:
        status = client.ask("GET", "connectors", name, "status")
        state = str(status["connector"]["state"])
        failed = [p for p in (status["connector"], *status["tasks"]) if p["state"] == "FAILED"]
        if failed:
            return Progress("failed", f"FAILED: {cause(failed[0])}")
        if state in {"PAUSED", "STOPPED"} or state == target:
            return Progress(state.lower())  # apply does not resume it
        if state != (target or "RUNNING"):
            return Progress("not ready", state)
        return _task_progress(client, name, status["tasks"])
    except (RefusedError, RetriableError) as e:
        return Progress("not ready", e.message)


def _task_progress(client: NodeClient, name: str, tasks: Sequence[Mapping[str, Any]]) -> Progress:
    """Return the progress of a connector that is RUNNING."""
    if tasks and all(task["state"] == "COMPLETED" for task in tasks):
        return Progress("completed")
    running = [t for t in tasks if t["state"] in {"RUNNING", "COMPLETED"} and not t.get("trace")]
    if len(running) < len(tasks) or not tasks:
        waiting = [cause(task) for task in tasks if task.get("trace")]
        reason = f"{len(running)} of {len(tasks)} tasks RUNNING"
        return Progress("not ready", ", ".join([reason, *waiting[:1]]))
    view = client.ask("GET", "icefloe", "v1", "connectors", name, "rounds")
    if view.get("answered") is False:
        reason = "its tasks have not read yet"
        if view["rounds"] and view["rounds"][-1].get("partial"):
            reason += "; the last round ended by timeout, the next begins after the commit interval"
        return Progress("not ready", reason)
    tables = view["rounds"][-1]["tables"] if view.get("answered") else ()
    for table in tables:
        if "code" in table:
            reason = f"FAILED: {table['table']}: {table['code']}: {table['message']}"
            return Progress("failed", reason)
    return Progress("running")


def cause(part: Mapping[str, Any]) -> str:
    """Return the first line of the trace of a connector or task."""
    lines = str(part.get("trace") or "").splitlines()
    return lines[0] if lines else "no trace"

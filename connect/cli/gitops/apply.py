"""Applies a plan to a node and waits until its connectors run.

Rules of this file:
- The node validates every configuration first. If one is invalid, nothing is applied. This
  validation contacts no broker and no catalog, so that their outage does not block a change.
- Applying is idempotent: after an interruption, apply the same files again.
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
                for sentence in value["errors"]
            )
    return result


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


def wait_until_running(
    client: NodeClient,
    names: Mapping[str, str | None],
    clock: SystemClock,
    *,
    timeout_ms: int,
    on_progress: Callable[[int], None],
) -> None:
    """Wait until connectors and all their tasks are in their target state.

    Args:
        client: of the node.
        names: connectors with their initial state; None stands for RUNNING.
        clock: for the pauses between polls.
        timeout_ms: limit for all connectors together.
        on_progress: receives the number of connectors in their target state.

    Raises:
        NotReadyError: the timeout has passed; the message has the state of each other connector.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        states = {name: _state(client, name, target) for name, target in names.items()}
        on_progress(sum(state is None for state in states.values()))
        waiting = {name: state for name, state in states.items() if state is not None}
        if not waiting:
            return
        if clock.monotonic_ms() >= deadline_ms:
            lines = "; ".join(f"{name}: {state}" for name, state in sorted(waiting.items()))
            raise NotReadyError(f"after {timeout_ms / 1000:.0f} s: {lines}")
        clock.sleep_ms(POLL_MS)


def _state(client: NodeClient, name: str, target: str | None) -> str | None:
    """Return None if a connector is in its target state, else a description of its state."""
    try:
        status = client.ask("GET", "connectors", name, "status")
    except (RefusedError, RetriableError) as e:
        return e.message
    connector, tasks = status["connector"], status["tasks"]
    failed = [part for part in (connector, *tasks) if part["state"] == "FAILED"]
    if failed:
        return f"FAILED: {cause(failed[0])}"
    target_state = target or "RUNNING"
    if connector["state"] != target_state:
        # apply does not resume a connector that an operator has paused or stopped
        return None if connector["state"] in ("PAUSED", "STOPPED") else str(connector["state"])
    # the tasks of a bounded run may already be through
    late = [t for t in tasks if t["state"] not in {target_state, "COMPLETED"}]
    if late or (target_state == "RUNNING" and not tasks):
        return f"{len(tasks) - len(late)} of {len(tasks)} tasks {target_state}"
    return None


def cause(part: Mapping[str, Any]) -> str:
    """Return the first line of the trace of a connector or task."""
    lines = str(part.get("trace") or "").splitlines()
    return lines[0] if lines else "no trace"

"""Plans carried out on a node, and waited for.

Rules of this file:
- Everything is validated by the node first; nothing is applied when anything is wrong. Brokers
  and catalogs are not asked: an outage of theirs holds up no change.
- Applying the same files again changes nothing. After an interruption, apply them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from connect.cli.gitops.connector_files import Desired
from connect.cli.gitops.plan import Action, ApplyPlan, config_to_send, make_plan
from connect.cli.rest_client import NodeClient, RefusedError
from connect.clock import SystemClock
from connect.errors import ExitStatus, IcefloeError, RetriableError

TRIES_MAX = 10
TRY_PAUSE_MS = 1_000
LOOK_MS = 500
_CONFLICT = 409
_NOT_FOUND = 404
_NOT_VALID = frozenset({400, _NOT_FOUND})
"""What a node answers to a configuration that it cannot check."""


class NotReadyError(IcefloeError):
    """Connectors that do not run as they should."""

    default_code = "not_ready"
    exit_status = ExitStatus.NO


def actual(client: NodeClient) -> dict[str, Mapping[str, str]]:
    """Configurations of all connectors of a node, by name."""
    listed = client.ask("GET", "connectors", expand="info")
    return {name: entry["info"]["config"] for name, entry in listed.items()}


def compare(
    client: NodeClient, desired: Sequence[Desired], *, owner: str, prune: bool
) -> ApplyPlan:
    """What must change; errors as ``make_plan``."""
    return make_plan(desired, actual(client), owner=owner, prune=prune)


def problems(client: NodeClient, desired: Iterable[Desired], *, is_remote: bool) -> list[str]:
    """What the node finds wrong, a sentence each, with file and key.

    Args:
        client: of the node.
        desired: connectors.
        is_remote: whether it asks brokers and catalogs, too.

    Raises:
        RefusedError: the node does not check configurations for this caller, or not now.
    """
    found = []
    query = {"icefloe.remote": str(is_remote).lower()}
    for item in desired:
        plugin = item.config["connector.class"].strip()
        try:
            path = ("connector-plugins", plugin, "config", "validate")
            answer = client.ask("PUT", *path, json=dict(item.config), **query)
        except RefusedError as e:
            if e.status not in _NOT_VALID:
                raise
            found.append(f"{item.source}: {item.name}: {e.message}")
            continue
        for entry in answer["configs"]:
            value = entry["value"]
            found.extend(
                f"{item.source}: {item.name}: {value['name']}: {sentence}"
                for sentence in value["errors"]
            )
    return found


def carry_out(
    client: NodeClient,
    plan: ApplyPlan,
    clock: SystemClock,
    *,
    owner: str,
    on_progress: Callable[[int], None],
) -> None:
    """Do what a plan says, in its order.

    Args:
        client: of the node.
        plan: what to do.
        clock: to wait while the node is busy.
        owner: written into what is applied.
        on_progress: receives how many actions are done.

    Raises:
        RefusedError: the node refuses one; those before it are done, those after it are not.
    """
    for number, action in enumerate(plan.pending, 1):
        for attempt in range(TRIES_MAX):
            try:
                _do(client, action, owner)
            except RefusedError as e:
                if e.status != _CONFLICT or attempt == TRIES_MAX - 1:
                    e.message = f"{action.kind} {action.name}: {e.message}"
                    raise
                clock.sleep_ms(TRY_PAUSE_MS)  # another change of it is under way
            else:
                break
        on_progress(number)


def _do(client: NodeClient, action: Action, owner: str) -> None:
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
    """Wait until connectors and all their tasks are in their state.

    Args:
        client: of the node.
        names: connectors with the state they were created in, None for running.
        clock: to wait.
        timeout_ms: for all of them together.
        on_progress: receives how many are running.

    Raises:
        NotReadyError: one failed, or the time is over; names each with its cause.
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
        clock.sleep_ms(LOOK_MS)


def _state(client: NodeClient, name: str, target: str | None) -> str | None:
    """None when the connector is where it should be; else where it is."""
    try:
        status = client.ask("GET", "connectors", name, "status")
    except (RefusedError, RetriableError) as e:
        return e.message
    connector, tasks = status["connector"], status["tasks"]
    failed = [part for part in (connector, *tasks) if part["state"] == "FAILED"]
    if failed:
        return f"FAILED: {cause(failed[0])}"
    wanted = target or "RUNNING"
    if connector["state"] != wanted:
        # one that was paused or stopped before stays so: apply does not resume
        return None if connector["state"] in ("PAUSED", "STOPPED") else str(connector["state"])
    late = [task for task in tasks if task["state"] != wanted]
    if late or (wanted == "RUNNING" and not tasks):
        return f"{len(tasks) - len(late)} of {len(tasks)} tasks {wanted}"
    return None


def cause(part: Mapping[str, Any]) -> str:
    """The first line of a trace."""
    lines = str(part.get("trace") or "").splitlines()
    return lines[0] if lines else "no trace"

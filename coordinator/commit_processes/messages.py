"""What a coordinator and its commit processes send each other.

Rules of this file:
- Commits go to the process as Python objects (pickle), because both sides are of one version and
  the coordinator is trusted. Outcomes come back as JSON with the coordinator's own names in them:
  the coordinator reads no object that another process made.
- Secrets are in ``Opening``, which is sent over the pipe only.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from coordinator.commit.table_committers import CommitterSettings
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)

_COUNTS = ("files", "records", "duration_ms", "size_bytes")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a commit process needs before its first commit.

    Attributes:
        settings: of the committer; without clients.
        kafka: properties of a client of the control topic's cluster; None without a broker.
        secrets: texts that are masked in logs, and their replacements.
    """

    settings: CommitterSettings
    kafka: Mapping[str, str] | None
    secrets: Mapping[str, str]


def encoded(value: Opening | TableCommit) -> bytes:
    """Return the payload of an ``open`` or ``commit`` message."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def decoded(payload: bytes, kind: type[T]) -> T:
    """Return the value of a payload that the coordinator of this process sent.

    Args:
        payload: of an ``open`` or ``commit`` message.
        kind: its class.
    """
    value = pickle.loads(payload)  # noqa: S301 - from the process that started this one
    assert isinstance(value, kind)
    return value


def outcome_message(number: int, outcome: CommitOutcome) -> dict[str, Any]:
    """Return the ``outcome`` message of a commit.

    Args:
        number: of the commit.
        outcome: of it.
    """
    head = {"event": "outcome", "number": number}
    match outcome:
        case TableCommitted():
            counts = {name: getattr(outcome, name) for name in _COUNTS}
            return {**head, "kind": "committed", "snapshot_id": outcome.snapshot_id, **counts}
        case TableFailed():
            uuid = outcome.present_uuid
            return {
                **head,
                "kind": "failed",
                "code": outcome.code,
                "message": outcome.message,
                "retriable": outcome.is_retriable,
                "present_uuid": None if uuid is None else str(uuid),
            }
        case CoordinatorFenced():
            return {**head, "kind": "fenced", "message": outcome.message}


def outcome_of(commit: TableCommit, message: Mapping[str, Any]) -> CommitOutcome:
    """Return the outcome of a commit.

    Args:
        commit: as it was sent.
        message: the answer.

    Raises:
        KeyError, ValueError: it is no outcome.
    """
    table, commit_id = commit.table, commit.commit_id
    match message["kind"]:
        case "committed":
            snapshot_id = message["snapshot_id"]
            if snapshot_id is not None:
                snapshot_id = _value(message, "snapshot_id", int)
            counts = {name: _value(message, name, int) for name in _COUNTS}
            return TableCommitted(table, commit_id, snapshot_id, **counts)
        case "failed":
            uuid = message["present_uuid"]
            return TableFailed(
                table,
                commit_id,
                _value(message, "code", str),
                _value(message, "message", str),
                _value(message, "retriable", bool),
                None if uuid is None else UUID(_value(message, "present_uuid", str)),
            )
        case "fenced":
            return CoordinatorFenced(table, commit_id, _value(message, "message", str))
        case kind:
            raise ValueError(f"unknown kind of outcome {kind!r}")


def _value(message: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = message[name]
    if type(value) is not kind:
        raise ValueError(f"{name} of an outcome is {value!r}")
    return value

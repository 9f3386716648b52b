"""What a coordinator needs of the process around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connect.model.layout import TopicPartition
from connect.model.round_span import RoundSpan
from connect.validation.secret_renewal import SecretRenewal
from coordinator.commit.commit_attempt import WaitingClock
from coordinator.kernel.effects import RoundEnded

CHECK_MS = 60_000


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """What a coordinator needs of the process around it.

    Attributes:
        kafka: Java-named client properties of the node for this connector.
        node_group_id: ``group.id`` of the node cluster, first part of the transactional id.
        clock: time and identities.
        on_round: called with each finished round.
        on_event: called with a kind and its coordinates: ``malformed``, ``restart``, ``opened``
            when it begins to work, ``kept`` with the records and bytes that are in no table yet,
            ``failed_tables``, ``decided`` with the result of an operator's decision, ``failing``
            with the error that it retries, ``stalled``, ``retention`` with the time after which
            the control topic deletes an announcement, ``completed`` with the layout when a bounded
            run is complete, ``maintenance_limits`` when it begins, and ``maintenance_due`` with a
            table and its due work. It may be called from any thread.
        waits_for: called with what it waits for, and with None when it works again.
        ends: end offsets of a bounded run; None when it is not bounded.
        poll_ms: how often the control topic is checked.
        secrets: reads the secrets of configuration and node again; None keeps them.
        on_spans: receives the spans of each round; None while the node exports no traces.
    """

    kafka: Mapping[str, str]
    node_group_id: str
    clock: WaitingClock
    on_round: Callable[[RoundEnded], None]
    on_event: Callable[[str, Mapping[str, Any]], None]
    waits_for: Callable[[str | None], None] = lambda _: None
    ends: Mapping[TopicPartition, int] | None = None
    poll_ms: int = CHECK_MS
    secrets: SecretRenewal | None = None
    on_spans: Callable[[Sequence[RoundSpan]], None] | None = None

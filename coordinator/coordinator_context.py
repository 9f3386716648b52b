"""What a coordinator needs of the process around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.model.layout import TopicPartition
from connect.model.round_span import RoundSpan
from connect.protocol.control_feed import ControlFeeds
from connect.validation.secret_renewal import SecretRenewal
from coordinator.commit.commit_retries import WaitingClock
from coordinator.kernel.effects import RoundEnded

CHECK_MS = 60_000


def coordinator_feeds() -> ControlFeeds:
    """Return feeds for coordinators, which need the announcements."""
    return ControlFeeds(takes_announcements=True)


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """What a coordinator needs of the process around it.

    Attributes:
        kafka: Java-named client properties of the node for this connector.
        node_group_id: ``group.id`` of the node cluster, first part of the transactional id.
        clock: time and identities.
        on_round: called with each finished round.
        on_event: called, from any thread, with a kind and its coordinates:

            - ``opened`` and ``maintenance_limits`` when the coordinator begins to work;
            - ``restart``; ``failing`` with the error that it retries;
            - ``malformed``: a control event that cannot be read;
            - ``kept`` with the records and bytes that are announced and in no table yet;
            - ``failed_tables``; ``decided`` with the result of an operator's decision;
            - ``stalled``; ``retention`` with the time after which the control topic deletes an
              announcement;
            - ``completed`` with the layout when a bounded run is complete;
            - ``maintenance_due`` with a table and its due work;
            - ``table_described`` with a table's location and columns.
        waits_for: called with what it waits for, and with None when it works again.
        ends: end offsets of a bounded run; None when it is not bounded.
        poll_ms: how often the control topic is checked.
        secrets: reads the secrets of configuration and node again; None keeps them.
        admins: admin clients, for all coordinators of the process.
        control: readers of the control topics, for all coordinators of the process.
        on_spans: receives the spans of each round; None while the node exports no traces.
        describes_tables: report ``table_described``, for lineage events of the node.
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
    admins: SharedAdmins = field(default_factory=SharedAdmins)
    control: ControlFeeds = field(default_factory=coordinator_feeds)
    on_spans: Callable[[Sequence[RoundSpan]], None] | None = None
    describes_tables: bool = False

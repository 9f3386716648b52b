"""A group member whose keys are replaced at the worst moment, with a client that only refuses.

``tests/e2e/test_secure_kafka.py`` replaces the keys of a real broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from connect.gateways.kafka.group_membership import GroupMember

WAIT_S = 30.0


class RefusedClients:
    """Clients of which the broker refuses the first one.

    Args:
        on_made: called after the first one was made.
        hangs: closing the first one takes until ``ends`` is set.

    Attributes:
        made: their number.
        joined: set when a further one subscribes.
    """

    def __init__(self, on_made: Callable[[], object], *, hangs: bool) -> None:
        self.made = 0
        self.joined = threading.Event()
        self.ends = threading.Event()
        self._on_made = on_made
        if not hangs:
            self.ends.set()

    def make(self, settings: Mapping[str, Any]) -> RefusedClient:
        """Make a client from librdkafka's settings."""
        self.made += 1
        if self.made == 1:
            self._on_made()
        return RefusedClient(self, settings["error_cb"], is_first=self.made == 1)


class RefusedClient:
    """A consumer, as far as a member of a group needs it."""

    def __init__(
        self, clients: RefusedClients, report: Callable[[KafkaError], None], *, is_first: bool
    ) -> None:
        self._clients = clients
        self._report = report
        self._is_first = is_first

    def subscribe(self, topics: list[str], **_: object) -> None:
        """Join the group."""
        assert topics
        if not self._is_first:
            self._clients.joined.set()

    def poll(self, timeout_s: float) -> None:
        """Wait, and report the refusal."""
        self._clients.joined.wait(timeout_s)
        if self._is_first:
            self._report(KafkaError(KafkaError._SSL, "the broker's certificate is unknown"))

    def close(self) -> None:
        """Leave the group."""
        if self._is_first:
            self._clients.ends.wait(WAIT_S)


@pytest.mark.parametrize("moment", ["while the client is made", "later, and the client hangs"])
def test_replaced_keys_are_taken(tmp_path: Path, moment: str) -> None:
    """The member joins again with them."""
    keys, is_late = tmp_path / "ca.pem", moment.startswith("later")
    keys.write_text("first")

    def replace() -> None:
        keys.write_text("the second one")

    clients = RefusedClients(replace if not is_late else lambda: None, hangs=is_late)
    member = GroupMember(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SSL",
            "ssl.ca.location": str(keys),
        },
        group_id="icefloe",
        topic="icefloe-leader",
        name="node",
        session_timeout_ms=10_000,
        heartbeat_ms=3_000,
        on_membership=lambda _: None,
        on_refused=lambda _: None,
        make_client=clients.make,
    )
    member.start()
    if is_late:
        replace()
    assert clients.joined.wait(WAIT_S)
    clients.ends.set()
    member.leave()
    assert clients.made == 2

"""Ways out of what stops a connector, as an operator goes them; others run on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from control_schemas.codec import encode
from control_schemas.events import (
    DataComplete,
    Event,
    EventHeaders,
    SourceRange,
    TopicPartitionOffset,
)
from control_schemas.headers import encode_headers
from tests.support.running_stack import EVENT, RunningStack, numbered
from tests.support.stack import unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class CommittedConnector:
    """A connector of its own with its source, control topic and table; and ten rows committed.

    Args:
        running: the stack.
        admin: the cluster.
        prefix: of all names.
    """

    def __init__(self, running: RunningStack, admin: KafkaAdmin, prefix: str) -> None:
        self.running = running
        self.admin = admin
        self.name = unique_name(prefix)
        self.topic = running.topic("source")
        self.control = running.topic("control")
        self.table = f"ways.{unique_name('t').replace('-', '_')}"
        running.table(self.table)
        self.config = running.connector(topics=self.topic, iceberg__tables=self.table)
        self.config["iceberg.control.topic"] = self.control
        running.create(self.name, self.config)
        running.produce(self.topic, *numbered(0, 10))
        assert self.ids(10) == [*range(10)]

    def ids(self, count: int) -> list[int]:
        """Wait until the table has so many rows; their ids."""
        return sorted(row["id"] for row in self.running.rows(self.table, count, self.name))

    def cause(self) -> str:
        """First line of the trace, once there is one."""
        return self.running.trace(self.name).partition("\n")[0]

    def reported(self) -> str:
        """The connector's trace, which names failed tables while it runs."""

        def inspect() -> str | None:
            trace: str | None = self.running.status(self.name)["connector"].get("trace")
            return trace

        return self.running.wait_until(inspect, lambda: f"{self.running.status(self.name)}")

    def stop(self) -> None:
        """Stop it and wait until its offsets may be changed."""
        self.running.stop(self.name)

    def rebase(self) -> str:
        """Ask what a rebase would do, then do it; what it says."""
        at_first = ("control", "rebase", self.name)
        status, output = self.running.icefloe(*at_first)
        assert status == 2, output
        status, output = self.running.icefloe(*at_first, "--yes")
        assert status == 0, output
        return output

    def runs(self) -> None:
        """Wait until everything of it is in order."""
        self.running.wait_until_running(self.name)


@pytest.fixture
def admin(running: RunningStack) -> Iterator[KafkaAdmin]:
    """The cluster."""
    admin = KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})
    yield admin
    admin.close()


@pytest.fixture
def other(running: RunningStack, admin: KafkaAdmin) -> Iterator[CommittedConnector]:
    """Yield a healthy connector and check that it runs through the whole test."""
    case = CommittedConnector(running, admin, "unharmed")
    yield case
    running.produce(case.topic, *numbered(10, 5))
    assert case.ids(15) == [*range(15)]
    case.runs()
    running.delete(case.name)


def test_a_rebase_restores_a_lost_floor(running: RunningStack, admin: KafkaAdmin) -> None:
    """Without any stored floor the connector stops; it continues after a rebase."""
    case = CommittedConnector(running, admin, "floorless")
    case.stop()
    forget_commits(running.catalog.load_table(case.table), case)
    running.produce(case.topic, *numbered(10, 5))
    running.request_state(case.name, "resume")
    assert "floor_lost" in case.reported()
    case.stop()
    output = case.rebase()
    assert "floor_lost" in output
    running.request_state(case.name, "resume")
    assert case.ids(16) == [-1, *range(15)]
    case.runs()
    running.produce(case.topic, *numbered(15, 5))
    assert case.ids(21) == [-1, *range(20)]
    running.delete(case.name)


@pytest.mark.matrix
def test_announced_ranges_with_a_gap_are_accepted_after_a_rebase(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """Until then the connector stops at each start."""
    case = CommittedConnector(running, admin, "gapped")
    case.stop()
    announce_ranges(case, (10, 20), (50, 60))
    for _ in range(2):
        running.request_state(case.name, "resume")
        assert "source_gap" in case.cause()
        case.stop()
    assert "accepted as they are" in case.rebase()
    running.request_state(case.name, "resume")
    running.produce(case.topic, *numbered(10, 5))
    assert case.ids(15) == [*range(15)]
    case.runs()
    running.delete(case.name)


@pytest.mark.matrix
def test_a_recreated_source_topic_is_read_after_an_offset_reset(
    running: RunningStack, admin: KafkaAdmin, other: CommittedConnector
) -> None:
    """Nothing of the new topic is read before."""
    case = CommittedConnector(running, admin, "renewed")
    assert other.name != case.name
    delete_topic(admin, case.topic)
    running.wait_until(lambda: case.topic not in admin.topics(), lambda: "the topic's end")
    admin.ensure_topic(case.topic, 1, replication_factor=1)
    running.produce(case.topic, *numbered(100, 20))
    cause = case.cause()
    assert "source_topic_" in cause  # _deleted or _recreated, depending on the time of the poll
    assert case.topic in cause
    assert case.ids(10) == [*range(10)]
    case.stop()
    running.set_offset(case.name, (case.topic, 0), None)
    running.request_state(case.name, "resume")
    assert case.ids(30) == [*range(10), *range(100, 120)]
    case.runs()
    running.delete(case.name)


@pytest.mark.faults
def test_a_wrong_broker_address_affects_only_its_connector(
    running: RunningStack, admin: KafkaAdmin, other: CommittedConnector
) -> None:
    """The trace says that no broker answers; with the right address it continues."""
    case = CommittedConnector(running, admin, "misled")
    assert other.name != case.name
    key = "consumer.override.bootstrap.servers"
    where = f"/connectors/{case.name}/config"
    assert running.api.put(where, json={**case.config, key: "127.0.0.1:1"}).is_success
    assert "broker_unavailable" in case.cause()
    running.produce(case.topic, *numbered(10, 5))
    assert running.api.put(where, json=case.config).is_success
    assert case.ids(15) == [*range(15)]
    case.runs()
    running.delete(case.name)


def forget_commits(table: Table, case: CommittedConnector) -> None:
    """Leave nothing that says what was committed: no property, no tag, no snapshot of ours."""
    ours = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    row = EVENT.as_arrow().empty_table().from_pylist([{"id": -1, "name": "foreign"}])
    table.append(row.cast(EVENT.as_arrow()))
    with table.transaction() as change:
        change.remove_properties(
            *(key for key in table.properties if key.startswith("icefloe.offsets."))
        )
    table.manage_snapshots().remove_tag(f"icefloe-{case.name}").commit()
    table.maintenance.expire_snapshots().by_ids(ours).commit()


def announce_ranges(case: CommittedConnector, *ranges: tuple[int, int]) -> None:
    """Say that these source offsets were read, as a task does, with no file in any."""
    group = f"connect-{case.name}"
    stack = case.running.stack
    hand = TransactionalProducer(
        {"bootstrap.servers": stack.bootstrap_servers}, f"hand-{case.name}"
    )
    hand.init()
    for start, end in ranges:
        output = SourceRange(case.topic, 0, start, end, 0, 0, 0, 0, None)
        stand = TopicPartitionOffset(case.topic, 0, end, None)
        event = Event(uuid4(), 0, group, DataComplete(uuid4(), (stand,)))
        headers = encode_headers(EventHeaders(layout=1, ranges=(output,)))
        hand.transact(
            [ProducerMessage(case.control, group.encode(), encode(event), headers, partition=0)]
        )
    hand.close()
    assert case.admin.committed(group, [TopicPartition(case.topic, 0)])

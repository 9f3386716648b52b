"""Moves of a connector whose sink was killed: with announced files, or inside a transaction.

To stop a catalog, these tests kill it and never freeze it. A frozen server executes the requests in
its socket when it continues, also those of clients that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from pyiceberg.catalog import Catalog, load_catalog

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from control_schemas.codec import decode
from control_schemas.events import DataComplete, DataWritten
from tests.support.armed_points import arm
from tests.support.java_connect import JavaConnect
from tests.support.moving import (
    NUMBERED,
    UNSAFE,
    SourceTopic,
    announced,
    codes,
    connector,
    engines,
    migrate_check,
    rows,
    wait_rows,
)
from tests.support.running_stack import RunningStack, armed_stack
from tests.support.stack import RestCatalog, unique_name

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]

PARTITIONS = 3
TRIES_MAX = 10
LISTEN_S = 60.0


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which files arm failpoints of the node's processes."""
    return tmp_path_factory.mktemp("armed")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, armed: Path) -> Iterator[RunningStack]:
    """A stack of these tests' own: its node is killed."""
    with armed_stack(tmp_path_factory.mktemp("stack"), armed) as running:
        yield running


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """The catalog that both sinks commit to; it is killed, too."""
    catalog = RestCatalog(tmp_path_factory.mktemp("store"))
    catalog.start()
    yield catalog
    catalog.stop()


@pytest.fixture(scope="module")
def catalog(store: RestCatalog) -> Catalog:
    """The same, opened."""
    return load_catalog("rest", **store.properties)


@pytest.fixture
def java(running: RunningStack, tmp_path: Path) -> Iterator[JavaConnect]:
    """A Java worker that knows of no connector."""
    worker = JavaConnect(
        tmp_path / "java", running.stack.bootstrap_servers, name=unique_name("java")
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.close()


@pytest.fixture
def admin(running: RunningStack) -> Iterator[KafkaAdmin]:
    """The cluster."""
    admin = KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})
    yield admin
    admin.close()


def test_icefloe_commits_what_a_killed_java_sink_had_announced(
    running: RunningStack,
    java: JavaConnect,
    store: RestCatalog,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    """Announced files are committed once, records not announced are read: the source is whole."""
    source, table, name = SourceTopic(running, "killed"), "default.killed", "killed"
    loaded = running.table(table, catalog, schema=NUMBERED)
    data = Path(urlparse(loaded.location()).path, "data")
    control_topic = running.topic("control", partitions=PARTITIONS)
    config = connector(store, source, table, control_topic)
    for partition in (0, 1):
        source.write(partition, 5)
    java.create(name, {**config, "iceberg.control.commit.interval-ms": "5000"})
    wait_rows(running, catalog, table, source)

    def left_announced() -> bool:
        """Kill catalog, then sink; whether it had announced and could not commit."""
        known = len(list(data.iterdir()))
        source.write(0, 5)
        # an open writer has loaded its table: the catalog is needed again only to commit
        java.wait_until(lambda: len(list(data.iterdir())) > known, lambda: "a writer to be opened")
        store.kill()
        try:
            java.wait_until(
                lambda: announced(running, control_topic, f"connect-{name}") == len(source.written),
                lambda: "files to be announced",
            )
            java.kill()
        finally:
            store.start()
        return len(rows(catalog, table)) < len(source.written)

    def again() -> None:
        """The round was faster than the kill: nothing waits."""
        java.start()
        java.wait_running(name)

    wait_until_it_happens(left_announced, again)
    before = len(source.written) - 5
    source.write(1, 5)
    # its members stay until their sessions are over; what waits is seen at once
    _, report = migrate_check(running, tmp_path, name, config)
    assert codes(report) - {"group_in_use", "open_transaction"} == {"pending"}
    (left,) = report["tables"]
    assert (left["pending_files"], left["pending_records"]) == (1, 5)
    assert len(rows(catalog, table)) == before
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    assert engines(catalog, table)[-1] == "icefloe"
    running.delete(name)


def test_a_java_sink_killed_inside_a_transaction_is_waited_for(
    running: RunningStack,
    java: JavaConnect,
    store: RestCatalog,
    admin: KafkaAdmin,
    tmp_path: Path,
) -> None:
    """Readers stop at the transaction until the broker aborts it; no record is lost or twice."""
    source, table, name = SourceTopic(running, "hanging"), "default.hanging", "hanging"
    catalog = load_catalog("rest", **store.properties)
    running.table(table, catalog, schema=NUMBERED)
    control_topic = running.topic("control", partitions=PARTITIONS)
    config = connector(store, source, table, control_topic)
    for partition in (0, 1):
        source.write(partition, 5)
    java.create(name, config)
    wait_rows(running, catalog, table, source)
    places = [TopicPartition(control_topic, p) for p in range(PARTITIONS)]

    def hangs() -> bool:
        """Freeze the sink when a task's first event of an announcement is in the log."""
        with listening(running, admin.high_watermarks(places)) as reader:
            source.write(0, 5)
            wait_for_announcement(reader)
            java.pause()
        return all(admin.high_watermarks(places) != admin.ends(places) for _ in range(20))

    wait_until_it_happens(hangs, java.unpause)
    java.kill()
    assert {"open_transaction", "offsets_pending"} & checked(running, tmp_path, name, config)
    source.write(1, 5)
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    assert admin.high_watermarks(places) == admin.ends(places)
    assert engines(catalog, table)[-1] == "icefloe"
    running.delete(name)


def test_groups_of_the_newer_consumer_protocol_are_taken_over(
    running: RunningStack,
    java: JavaConnect,
    store: RestCatalog,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    """The check finds members of the group; Icefloe, then Java, continue from its offsets."""
    source, table, name = SourceTopic(running, "newer"), "default.newer", "newer"
    running.table(table, catalog, schema=NUMBERED)
    control_topic = running.topic("control", partitions=PARTITIONS)
    config = connector(store, source, table, control_topic)
    del config["consumer.override.session.timeout.ms"]  # the broker decides, in this protocol
    del config["iceberg.kafka.session.timeout.ms"]
    config["consumer.override.group.protocol"] = "consumer"
    config["iceberg.kafka.group.protocol"] = "consumer"
    for partition in (0, 1):
        source.write(partition, 10)
    java.create(name, config)
    wait_rows(running, catalog, table, source)
    status, report = migrate_check(running, tmp_path, name, config)
    assert (status, codes(report)) == (UNSAFE, {"group_in_use"})
    java.stop_connector(name)
    source.write(0, 5)
    report = running.wait_until(
        lambda: (checked := migrate_check(running, tmp_path, name, config))[0] == 0 and checked[1],
        lambda: "the Java sink's members to leave",
    )
    assert {start["offset"] for start in report["starts"].values()} == {10}
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    running.delete(name)
    source.write(1, 3)
    java.resume(name)
    wait_rows(running, catalog, table, source)
    writers = engines(catalog, table)
    assert writers[0] == writers[-1] == "kafka-connect"
    assert "icefloe" in writers


def test_java_commits_what_a_killed_icefloe_had_announced(
    running: RunningStack,
    java: JavaConnect,
    store: RestCatalog,
    catalog: Catalog,
    armed: Path,
) -> None:
    """Every process of ours ends at once: Java's first round holds what was announced."""
    source, table, name = SourceTopic(running, "ended"), "default.ended", "ended"
    running.table(table, catalog, schema=NUMBERED)
    control_topic = running.topic("control", partitions=PARTITIONS)
    config = connector(store, source, table, control_topic)
    for partition in (0, 1):
        source.write(partition, 5)
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    arm(armed, "C7", "hang")
    source.write(0, 5)
    running.wait_until(
        lambda: announced(running, control_topic, f"connect-{name}") == len(source.written),
        lambda: "files to be announced",
    )
    running.wait_until(lambda: not (armed / "C7").exists(), lambda: "a commit to begin")
    kill_node(running)
    try:
        assert len(rows(catalog, table)) == 10
        source.write(1, 5)
        java.create(name, config)
        java.wait_until(
            lambda: len(rows(catalog, table)) >= len(source.written),
            lambda: f"{len(source.written)} rows, now {len(rows(catalog, table))}",
        )
        assert rows(catalog, table) == sorted(source.written)
        assert engines(catalog, table)[-1] == "kafka-connect"
        java.delete(name)
    finally:
        running.stack.start_node()
        running.stack.wait_for_node()


def checked(running: RunningStack, folder: Path, name: str, config: dict[str, str]) -> set[str]:
    """Return the codes of ``icefloe migrate --check``, or the code of the error that stops it."""
    try:
        return codes(migrate_check(running, folder, name, config)[1])
    except RetriableError as e:
        return {e.code}


def kill_node(running: RunningStack) -> None:
    """End the node and its children at once."""
    node, *children = (process for process, _ in running.processes())
    for process in children:
        process.kill()
    assert running.stack._node is not None
    assert running.stack._node.pid == node.pid
    running.stack._node.kill()


def wait_until_it_happens(attempt: Callable[[], bool], again: Callable[[], None]) -> None:
    """Try until a kill or freeze came at the moment that is to be tested."""
    for _ in range(TRIES_MAX):
        if attempt():
            return
        again()
    pytest.fail(f"the moment was missed {TRIES_MAX} times")


class listening:  # noqa: N801 - used as a verb
    """A reader of what is not committed yet, from these control offsets on."""

    def __init__(self, running: RunningStack, starts: dict[TopicPartition, int]) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": running.stack.bootstrap_servers,
                "group.id": "uncommitted",
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._reader.assign([ClientPartition(*tp, at) for tp, at in starts.items()])

    def __enter__(self) -> Consumer:
        self._reader.poll(0.5)
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def wait_for_announcement(reader: Consumer) -> None:
    """Return when a task's event is in the log, committed or not."""
    for _ in range(int(LISTEN_S / 0.1)):
        record = reader.poll(0.1)
        if record is not None and record.error() is None:
            payload = decode(record.value()).payload
            if isinstance(payload, DataWritten | DataComplete):
                return
    pytest.fail("nothing was announced")

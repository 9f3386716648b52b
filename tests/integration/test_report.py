"""``icefloe report`` on a real broker: committed records, the latest of each key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from connect.errors import ExitStatus
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.command_line import CommandResult, icefloe
from tests.support.control_log import wait_until
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka
TIME_MS = 1_700_000_000_000
JSON_OPTIONS = {
    f"{side}.converter{option}": value
    for side in ("key", "value")
    for option, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        (".schemas.enable", "false"),
    )
}
Keyed = Mapping[str, dict[str, Any] | bytes | None]


class TransactionWriter:
    """Writes records in transactions, in partition 0 if the key is even, otherwise in 1.

    Args:
        bootstrap_servers: of the broker.
        topic: two partitions.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": unique_name("report"),
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)

    def write(self, time_ms: int, records: Keyed) -> None:
        """Begin a transaction and write records; it stays open."""
        self._producer.begin_transaction()
        for key, value in records.items():
            encoded = value if isinstance(value, bytes) or value is None else json.dumps(value)
            self._producer.produce(
                self._topic,
                encoded,
                json.dumps(key),
                partition=int(key) % 2,
                timestamp=time_ms,
            )
        self._producer.flush(30)

    def commit(self, time_ms: int, records: Keyed) -> None:
        """Write records and commit."""
        self.write(time_ms, records)
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        """Abort the open transaction."""
        self._producer.abort_transaction(30)


@pytest.fixture
def report(
    kafka_properties: dict[str, str], tmp_path: Path
) -> Callable[[str, tuple[str, ...]], CommandResult]:
    """Run a report by a query and options."""

    def run(sql: str, options: tuple[str, ...]) -> CommandResult:
        (tmp_path / "query.sql").write_text(sql)
        properties = tmp_path / "node.properties"
        lines = [f"{key}={value}" for key, value in {**kafka_properties, **JSON_OPTIONS}.items()]
        properties.write_text("\n".join(lines))
        where = ("-f", str(tmp_path / "query.sql"), "-p", str(properties))
        return icefloe("report", *where, *options)

    return run


def test_a_report_has_the_latest_committed_value_of_each_key(
    kafka_properties: dict[str, str],
    topics: Topics,
    admin: KafkaAdmin,
    report: Callable[[str, tuple[str, ...]], CommandResult],
    tmp_path: Path,
) -> None:
    """A compacted topic with aborted and open transactions, tombstones and a changed schema."""
    topic = topics.create("cameras", partitions=2, cleanup_policy="compact")
    places = topics.create("places", partitions=2, retention_ms="-1")
    bootstrap = kafka_properties["bootstrap.servers"]
    written = TransactionWriter(bootstrap, topic)
    written.commit(TIME_MS, {"1": {"n": 1}, "2": {"n": 2}, "3": {"n": 3}, "4": {"n": 4}})
    written.write(TIME_MS + 1, {"1": {"n": 99}, "2": None, "5": {"n": 99}})
    written.abort()
    written.commit(TIME_MS + 2, {"1": {"n": 10.5, "place": 7}, "3": None})
    TransactionWriter(bootstrap, places).commit(TIME_MS, {"7": {"id": 7, "name": "hall"}})
    partitions = [TopicPartition(name, p) for name in (topic, places) for p in range(2)]
    # the broker writes the markers of a transaction after it has acknowledged the commit
    wait_until(lambda: admin.ends(partitions) == admin.high_watermarks(partitions))
    still_open = TransactionWriter(bootstrap, topic)
    still_open.write(TIME_MS + 3, {"1": {"n": 77}, "2": {"n": 77}})

    tables = ("--table", f"cameras={topic}", "--table", f"places={places}")
    sql = (
        "SELECT c._key AS key, n, p.name FROM cameras c LEFT JOIN places p ON p.id = c.place "
        "ORDER BY key"
    )
    assert report(sql, (*tables, "-o", "csv")) == (
        ExitStatus.DONE,
        "key,n,name\n1,10.5,hall\n2,2.0,\n4,4.0,\n",
        "",
    )
    every = report(
        "SELECT _key, _partition, n FROM cameras ORDER BY _partition, _offset",
        (*tables, "--all", "-o", "json", "--from-timestamp", str(TIME_MS + 2)),
    )
    assert (every.status, json.loads(every.stdout)) == (
        ExitStatus.DONE,
        [{"_key": "1", "_partition": 1, "n": 10.5}, {"_key": "3", "_partition": 1, "n": None}],
    )
    connector = {"topics": topic, "connector.class": "IcebergSink", "iceberg.tables": "db.t"}
    catalog = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://127.0.0.1:9/none"}
    converter = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": "c", "config": {**connector, **catalog, **converter}}))
    texts = report(f"SELECT _value FROM \"{topic}\" WHERE _key = '4'", ("-c", str(file)))
    assert texts == (ExitStatus.DONE, '{"n": 4}\n', "")
    still_open.abort()


def test_a_report_says_what_it_lacks(
    kafka_properties: dict[str, str],
    topics: Topics,
    admin: KafkaAdmin,
    report: Callable[[str, tuple[str, ...]], CommandResult],
) -> None:
    """Records that cannot be decoded are status 1, as a missing topic; limits and SQL status 2."""
    topic = topics.create("broken", partitions=2, retention_ms="-1")
    written = TransactionWriter(kafka_properties["bootstrap.servers"], topic)
    written.commit(TIME_MS, {"1": {"n": 1}, "2": b"{content-7c2e", "4": b"{superseded"})
    written.commit(TIME_MS, {"4": {"n": 4}})
    partitions = [TopicPartition(topic, p) for p in range(2)]
    wait_until(lambda: admin.ends(partitions) == admin.high_watermarks(partitions))
    table = ("--table", f"t={topic}")

    lacking = report("SELECT sum(n) AS n FROM t", (*table, "-o", "csv"))
    assert (lacking.status, lacking.stdout) == (ExitStatus.NO, "n\n5\n")
    assert "table t lacks 1 records:" in lacking.stderr
    assert f"{topic}-0@0: VALUE_CONVERTER: " in lacking.stderr
    assert "content-7c2e" not in lacking.stderr
    missing = report("SELECT 1", ("--table", "no-such-topic"))
    assert (missing.status, missing.stdout) == (ExitStatus.NO, "")
    assert "topic no-such-topic does not exist" in missing.stderr
    limited = report("SELECT 1", (*table, "--max-records", "2"))
    assert (limited.status, "--max-records" in limited.stderr) == (ExitStatus.USAGE, True)
    refused = report("SELECT * FROM read_text('/etc/hostname')", table)
    assert (refused.status, refused.stdout) == (ExitStatus.USAGE, "")

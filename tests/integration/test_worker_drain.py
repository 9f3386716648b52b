"""Reading exact source ranges with a real broker and a real Spark session."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from connect.errors import DataLost, RetriableError
from connect.gateways.kafka_admin import KafkaAdmin
from connect.layout import TopicPartition
from tests.stack import Topics
from worker.descriptors import Progress
from worker.drain import Drain, as_arrow
from worker.rounds import Slice
from worker.session import Session
from worker.sizes import ReadSizes
from worker.source import map_spark_error, source_options
from worker.told_errors import LARGE_RECORD

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # pyspark leaves the socket of a collected result to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
COLUMNS = ("partition", "offset", "value")
WAIT_S = 120
_ids = itertools.count()


def echo(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a pipeline would see, as it is."""
    yield from batches


def weighed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows and bytes of each batch, and how many headers are null."""
    for batch in batches:
        row = (batch.num_rows, batch.nbytes, batch.column("headers").null_count)
        yield pa.record_batch([pa.array([n], pa.int32()) for n in row], ["rows", "size", "nulls"])


class Seen:
    """Collects what each micro-batch held; values by partition and offset."""

    def __init__(self, on_batch: Callable[[], None] = lambda: None) -> None:
        self.parts: list[Slice] = []
        self.tasks: list[int] = []
        self.rows: list[tuple[int, int]] = []
        self._on_batch = on_batch

    def __call__(self, rows: Any, part: Slice) -> None:
        self.parts.append(part)
        self.tasks.append(rows.rdd.getNumPartitions())
        ddl = "partition int, offset bigint, value binary"
        table = as_arrow(rows.mapInArrow(echo, ddl))
        self.rows += zip(
            table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
        )
        self._on_batch()


@pytest.fixture
def admin(kafka_properties: dict[str, str]) -> Iterator[KafkaAdmin]:
    """Questions to the session's broker."""
    client = KafkaAdmin(kafka_properties)
    yield client
    client.close()


@pytest.fixture
def drain(spark_session: Session, kafka_properties: dict[str, str]) -> Drain:
    """Reads under a task name of their own."""
    options = source_options(kafka_properties, {}, task=f"test-{next(_ids)}", has_headers=False)
    return Drain(spark_session, options, COLUMNS, pool="test")


def produce(
    properties: dict[str, str],
    topic: str,
    count: int,
    *,
    partition: int = 0,
    transaction: str = "",
    value: bytes = b"",
) -> None:
    """Produce ``count`` records, in a transaction that is committed or aborted if one is named.

    They hold their number, or all of them ``value``.
    """
    own: dict[str, Any] = {"transactional.id": f"test-{next(_ids)}"} if transaction else {}
    producer = Producer({**properties, "linger.ms": 5, "log_level": 0, **own})
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for i in range(count):
        producer.produce(topic, value or b'{"i":%d}' % i, partition=partition)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush(30)
    if transaction == "commit":
        producer.commit_transaction(30)
    elif transaction == "abort":
        producer.abort_transaction(30)


def settle(admin: KafkaAdmin, topic: str) -> None:
    """Wait for the marker of a transaction that has ended; it may come a little later."""
    place = [TopicPartition(topic, 0)]
    while admin.ends(place) != admin.high_watermarks(place):  # the test's timeout bounds it
        time.sleep(0.01)


def whole(admin: KafkaAdmin, topic: str, partitions: int = 1) -> Slice:
    """Everything of a topic."""
    marks = admin.watermarks([TopicPartition(topic, p) for p in range(partitions)])
    return Slice({tp: a for tp, (a, _) in marks.items()}, {tp: b for tp, (_, b) in marks.items()})


def never() -> bool:
    """Nobody stops."""
    return False


def take(how: str, drain: Drain, part: Slice, seen: Seen) -> None:
    """Read by one of the two ways."""
    if how == "read":
        drain.read(part, seen)
    else:
        drain.drain(part.starts, seen, is_stopping=never)


def test_read_takes_exactly_the_range(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """A small read holds the records of its range, all of them and no other, in one Spark task."""
    topic = topics.create("range", partitions=2)
    produce(kafka_properties, topic, 20)
    produce(kafka_properties, topic, 5, partition=1)
    a, b = TopicPartition(topic, 0), TopicPartition(topic, 1)
    seen = Seen()
    drain.read(Slice({a: 3, b: 5}, {a: 17, b: 5}), seen)
    assert seen.rows == [(0, i) for i in range(3, 17)]
    assert seen.tasks == [1]
    drain.read(Slice({a: 17, b: 5}, {a: 17, b: 5}), seen)
    assert len(seen.parts) == 1, "an empty range starts nothing"
    assert whole(admin, topic, 2).ends == {a: 20, b: 5}


@pytest.mark.parametrize("how", ["read", "drain"])
def test_transactions_leave_holes_not_losses(
    how: str,
    drain: Drain,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """Markers and aborted records are in the range, not in the rows; open ones are not read."""
    topic = topics.create("txn")
    # 0..9, marker 10; 11..20, marker 21; 22..24, marker 25; 26..29, marker 30
    for count, end in ((10, "commit"), (10, "abort"), (3, "commit"), (4, "abort")):
        produce(kafka_properties, topic, count, transaction=end)
        settle(admin, topic)
    left_open = Producer({**kafka_properties, "transactional.id": f"open-{how}", "log_level": 0})
    left_open.init_transactions(30)
    left_open.begin_transaction()
    left_open.produce(topic, b"{}")
    left_open.flush(30)
    part, seen = whole(admin, topic), Seen()
    take(how, drain, part, seen)
    left_open.abort_transaction(30)
    tp = TopicPartition(topic, 0)
    assert part.ends == {tp: 31}
    assert seen.parts == [Slice({tp: 0}, {tp: 31})]
    assert [offset for _, offset in seen.rows] == [*range(10), 22, 23, 24]


@pytest.mark.parametrize("how", ["read", "drain"])
def test_compaction_leaves_holes_not_losses(
    how: str,
    drain: Drain,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """Of a compacted log each key's last record is read, and the range reaches the log's end."""
    topic = topics.create(
        "compacted",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="100",
    )
    producer = Producer({**kafka_properties, "log_level": 0})
    last: dict[int, int] = {}
    end, seen = 0, Seen()
    while not end or len(seen.rows) > end // 2:  # the test's timeout bounds it
        for _ in range(40):
            producer.produce(topic, b"{}", key=str(end % 4), partition=0)
            last[end % 4], end = end, end + 1
        assert producer.flush(30) == 0
        time.sleep(0.3)
        seen = Seen()
        take(how, drain, whole(admin, topic), seen)
    offsets = [offset for _, offset in seen.rows]
    assert offsets == sorted(set(offsets))
    assert set(last.values()) <= set(offsets)
    assert seen.parts[-1].ends == {TopicPartition(topic, 0): end}


def test_drain_reads_a_backlog_in_bounded_batches(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Batches join without hole or overlap, hold every record once, and end at the log's end."""
    topic = topics.create("backlog", partitions=2)
    for partition in (0, 1):
        produce(kafka_properties, topic, 3_000, partition=partition)
    bounded = Drain(
        drain.session, drain.options, COLUMNS, "test", ReadSizes(500, batch_records=2_000)
    )
    part, seen = whole(admin, topic, 2), Seen()
    bounded.drain(part.starts, seen, is_stopping=never)
    assert len(seen.parts) >= 3
    assert all(p.record_count_max <= 2_002 for p in seen.parts)
    assert seen.parts[0].starts == part.starts
    assert seen.parts[-1].ends == part.ends
    for one, two in itertools.pairwise(seen.parts):
        assert one.ends == two.starts
    assert sorted(seen.rows) == [(p, i) for p in (0, 1) for i in range(3_000)]
    assert seen.tasks[0] == 2


def test_large_records_reach_python_a_few_at_a_time(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Arrow batches are bounded in bytes, and no headers are an empty list: see ``_column``."""
    topic = topics.create("large")
    produce(kafka_properties, topic, 30, value=b"x" * 900_000)
    columns = ("value", "headers")
    large = Drain(drain.session, drain.options | {"includeHeaders": "true"}, columns, "test")
    found: list[dict[str, int]] = []

    def looks(rows: Any, _: Slice) -> None:
        found.extend(
            as_arrow(rows.mapInArrow(weighed, "rows int, size int, nulls int")).to_pylist()
        )

    large.read(whole(admin, topic), looks)
    assert sum(each["rows"] for each in found) == 30
    assert max(each["size"] for each in found) < 18 * 2**20
    assert {each["nulls"] for each in found} == {0}


def small() -> ReadSizes:
    """What a task knows after a batch of small records."""
    sizes = ReadSizes()
    sizes.add({TopicPartition("t", 0): Progress(10_000, 0, 0, 10_000, bytes_read=1_900_000)})
    return sizes


@pytest.mark.parametrize("how", ["read", "drain"])
def test_small_records_reach_python_in_batches_of_rows(
    how: str, drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Where records are known to be small, nobody asks for the bytes of a batch."""
    topic = topics.create("small")
    produce(kafka_properties, topic, 900, value=b"x" * 30_000)
    options = drain.options | {"includeHeaders": "true"}
    found: list[dict[str, int]] = []

    def looks(rows: Any, _: Slice) -> None:
        found.extend(
            as_arrow(rows.mapInArrow(weighed, "rows int, size int, nulls int")).to_pylist()
        )

    columns = ("key", "value", "headers")
    if how == "read":
        Drain(drain.session, options, columns, "test", small()).read(whole(admin, topic), looks)
    else:
        ordered = Drain(drain.session, options, columns, "test", small(), is_ordered=True)
        ordered.drain(whole(admin, topic).starts, looks, is_stopping=never)
    assert [each["rows"] for each in found] == [900]
    assert found[0]["size"] > 16 * 2**20


@pytest.mark.parametrize("where", ["key", "value", "headers", "many headers"])
def test_a_record_that_is_not_small_is_told_and_can_be_read(
    where: str, drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Wherever it is large; what was read so far is not used."""
    topic = topics.create("uneven")
    odd: dict[str, Any] = {
        "key": {"key": b"k" * 40_000},
        "value": {"value": b"v" * 40_000},
        "headers": {"headers": [("h" * 10_000, b"x" * 30_000), ("n", None)]},
        "many headers": {"headers": [("", None)] * 3_000},
    }[where]
    producer = Producer({**kafka_properties, "log_level": 0})
    for number in range(100):
        producer.produce(topic, partition=0, **({"value": b"{}"} | (odd if number == 60 else {})))
    assert producer.flush(30) == 0
    options = drain.options | {"includeHeaders": "true"}
    columns = ("partition", "offset", "value", "key", "headers")
    reads = Drain(drain.session, options, columns, "test", small())
    for how in ("read", "drain"):
        with pytest.raises(RetriableError) as e:
            take(how, reads, whole(admin, topic), Seen())
        assert e.value.code == LARGE_RECORD
    assert reads.sizes.met_large()
    for how in ("read", "drain"):
        seen = Seen()
        take(how, reads, whole(admin, topic), seen)
        assert sorted(seen.rows) == [(0, n) for n in range(100)]


def test_stop_ends_the_drain_with_the_batch(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Once stopped, the batch at hand is finished, none begins, and no exception comes."""
    topic = topics.create("stopped")
    produce(kafka_properties, topic, 2_000)
    stopping = threading.Event()
    seen = Seen(stopping.set)
    bounded = Drain(drain.session, drain.options, COLUMNS, "test", ReadSizes(batch_records=500))
    bounded.drain(whole(admin, topic).starts, seen, is_stopping=stopping.is_set)
    assert [offset for _, offset in seen.rows] == list(range(500))


def test_error_in_a_batch_ends_the_drain_as_itself(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """What a batch raises reaches the caller unchanged, and no later batch is begun."""
    topic = topics.create("failing")
    produce(kafka_properties, topic, 2_000)
    calls = []

    def fails(_: Any, part: Slice) -> None:
        calls.append(part)
        raise RetriableError("the store is away", code="store_unavailable")

    bounded = Drain(drain.session, drain.options, COLUMNS, "test", ReadSizes(batch_records=500))
    with pytest.raises(RetriableError, match="the store is away"):
        bounded.drain(whole(admin, topic).starts, fails, is_stopping=never)
    assert len(calls) == 1


def test_error_in_a_python_worker_names_its_cause(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """A batch that fails in Spark is retriable; the message has the cause, not the trace."""
    topic = topics.create("poison")
    produce(kafka_properties, topic, 5)

    def poison(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise OSError(28, "No space left on device")

    def each(rows: Any, _: Slice) -> None:
        as_arrow(rows.mapInArrow(poison, "partition int, offset bigint, value binary"))

    with pytest.raises(RetriableError) as e:
        drain.read(whole(admin, topic), each)
    assert e.value.code == "batch_failed"
    assert str(e.value).endswith("OSError: [Errno 28] No space left on device")


@pytest.mark.parametrize("how", ["read", "drain"])
def test_deleted_records_are_a_loss(
    how: str, drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Records that retention took from under the reader stop it."""
    from confluent_kafka import TopicPartition as ClientPartition
    from confluent_kafka.admin import AdminClient

    topic = topics.create("gone")
    produce(kafka_properties, topic, 20)
    part = whole(admin, topic)
    client = AdminClient(kafka_properties)
    for future in client.delete_records([ClientPartition(topic, 0, 10)]).values():
        future.result(30)
    with pytest.raises(DataLost) as e:
        take(how, drain, part, Seen())
    assert e.value.code == "source_data_lost"


def test_drains_of_two_tasks_run_side_by_side(
    spark_session: Session, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Two tasks drain at the same time, each gets its own records."""
    meeting = threading.Barrier(2, timeout=WAIT_S)
    results: dict[str, Seen] = {}

    def one(topic: str) -> None:
        options = source_options(kafka_properties, {}, task=topic, has_headers=False)
        drain = Drain(spark_session, options, COLUMNS, pool=topic)
        seen = results[topic] = Seen(lambda: (meeting.wait(), None)[1])
        drain.drain(whole(admin, topic).starts, seen, is_stopping=never)

    names = [topics.create("side") for _ in range(2)]
    for number, topic in enumerate(names):
        produce(kafka_properties, topic, 10 + number)
    threads = [threading.Thread(target=one, args=(topic,)) for topic in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [len(results[topic].rows) for topic in names] == [10, 11]


def test_many_drains_leave_nothing_behind(
    drain: Drain, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Threads, handles and folders stay level over many queries (each leaks one without care)."""
    topic = topics.create("many")
    produce(kafka_properties, topic, 1)
    (jvm,) = (
        p
        for p in psutil.Process().children()
        if "org.apache.spark.deploy.SparkSubmit" in p.cmdline()
    )
    part = whole(admin, topic)

    def run(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            drain.drain(part.starts, Seen(), is_stopping=never)
        folders = len(list(drain.session.folder.glob("drain-*")))
        return threading.active_count(), jvm.num_fds(), folders

    threads, handles, folders = run(10)
    threads_later, handles_later, folders_later = run(30)
    assert folders == folders_later == 0
    assert threads_later <= threads + 3
    assert handles_later <= handles + 20


def test_spark_errors_without_a_known_sign_are_retriable() -> None:
    """What Spark says in other words is tried again."""
    error = map_spark_error(RuntimeError("Job aborted\nCaused by: java.io.IOException: broken"))
    assert (type(error), error.code) == (RetriableError, "batch_failed")
    assert "java.io.IOException: broken" in str(error)

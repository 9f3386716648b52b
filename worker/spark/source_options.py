"""Options of Spark's Kafka source for one task.

Rules of this file:
- Secrets are in the options alone: options reach the JVM over py4j, never a command line.
- A task keeps one consumer group id for all its reads (executors keep their consumers by it), and
  it changes with the options: Spark refuses one id under two sets of options.
- Every read names its partitions and offsets; Spark never asks a consumer group for a position.

Source:
    Spark 4.1, Structured Streaming + Kafka integration guide; measured fetch settings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from connect.errors import ConfigError, DataLost, IcefloeError, RetriableError
from connect.gateways.kafka.kafka_clients import client_properties
from connect.model.layout import TopicPartition
from connect.redaction.foreign_text import are_hidden
from worker.batch.error_rows import LARGE_RECORD, LETTERS_FULL

FETCH = {
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    "max.poll.records": "5000",
    # half a second per partition at the log's end otherwise; with data there it never matters
    "fetch.max.wait.ms": "10",
    "request.timeout.ms": "30000",
    "default.api.timeout.ms": "60000",
}
POLL_OPTION = "kafka.max.poll.records"
_SET_BY_SPARK = frozenset({
    "auto.offset.reset", "enable.auto.commit", "group.id", "group.instance.id",
    "interceptor.classes", "isolation.level", "key.deserializer", "partition.assignment.strategy",
    "value.deserializer",
})  # fmt: skip
_PRODUCER_ONLY = frozenset({
    "acks", "batch.size", "compression.type", "delivery.timeout.ms", "enable.idempotence",
    "linger.ms", "max.in.flight.requests.per.connection", "max.request.size", "retries",
    "transaction.timeout.ms",
})  # fmt: skip
_DATA_LOST = ("Some data may have been lost", "OffsetOutOfRangeException", "KAFKA_DATA_LOSS")
LARGE_RECORD_TEXT = "a record is not as small as the mean of those before it promised"
_RESULTS_FULL = "bigger than spark.driver.maxResultSize"
_CLASS_OR_CONDITION = re.compile(
    r"^(?:Caused by: )?((?:\w+\.)*[A-Z]\w{0,60}(?:Error|Exception))(?=:|\s*$)"
    r"|(?<=\[)([A-Z][A-Z0-9_.]+)(?=\])",
    re.MULTILINE,
)
_CLASSES_MAX = 5
_UNAVAILABLE = ("org.apache.kafka.common.errors.TimeoutException", "DisconnectException")


def source_options(
    node: Mapping[str, str],
    consumer_overrides: Mapping[str, str],
    *,
    task: str,
    has_headers: bool,
) -> dict[str, str]:
    """Options for ``spark.read`` and ``spark.readStream``, without partitions and offsets.

    Args:
        node: node properties.
        consumer_overrides: the connector's ``consumer.override.*``, prefix removed.
        task: name of the task, unique in the cluster; part of the consumers' group id.
        has_headers: read the record headers too.

    Raises:
        ConfigError: no ``bootstrap.servers``.
    """
    client = {**FETCH, **client_properties(node, consumer_overrides, prefix="consumer.")}
    if not client.get("bootstrap.servers"):
        raise ConfigError("bootstrap.servers is not set", code="bootstrap_servers_missing")
    kafka = {
        f"kafka.{k}": v
        for k, v in sorted(client.items())
        if k not in _SET_BY_SPARK and k not in _PRODUCER_ONLY
    }
    kafka["kafka.isolation.level"] = "read_committed"
    digest = hashlib.sha256(json.dumps(kafka).encode()).hexdigest()[:12]
    return {
        **kafka,
        "kafka.group.id": f"icefloe-source-{task}-{digest}",
        "failOnDataLoss": "true",
        "includeHeaders": str(has_headers).lower(),
    }


def assignment(partitions: Mapping[TopicPartition, Any]) -> str:
    """The ``assign`` option: topic -> partitions."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return json.dumps(topics)


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """The ``startingOffsets`` and ``endingOffsets`` options: topic -> partition -> offset."""
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(topics)


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Inverse of ``offsets_text``; also the last line of a checkpoint's offsets file."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def check_positions(
    positions: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, tuple[int, int]],
) -> None:
    """Make sure that everything from the positions on is still there.

    Raises:
        DataLost: ``source_data_lost`` with the range that retention took, or
            ``source_log_reset`` when the log ends before the position (a re-created topic).
    """
    for tp, position in sorted(positions.items()):
        start, end = watermarks[tp]
        if position < start:
            raise DataLost(
                f"source records [{position}, {start}) are gone: the log starts at {start}",
                code="source_data_lost",
                topic=tp.topic,
                partition=tp.partition,
                offset=position,
                log_start_offset=start,
            )
        if position > end:
            raise DataLost(
                f"reading stands at {position} but the log ends at {end}: "
                "the topic was created anew or truncated",
                code="source_log_reset",
                topic=tp.topic,
                partition=tp.partition,
                offset=position,
                log_end_offset=end,
            )


def map_spark_error(error: BaseException, *, is_query: bool = False) -> IcefloeError:
    """What Spark raised out of a read, as one of ours; its message names the cause in one line.

    Args:
        error: of Spark, py4j or ours.
        is_query: whether a query of a connector ran in it: then no text of Spark's is passed on,
            which may quote files and values, but the classes of the errors alone.
    """
    if isinstance(error, IcefloeError):
        return error
    text = str(error)
    if any(sign in text for sign in _DATA_LOST):
        return DataLost(
            "the source records that were asked for are no longer there", code="source_data_lost"
        )
    # a trace of a Python worker quotes what stores and catalogs answer
    cause = _classes(text) if is_query or are_hidden() else _cause(text)
    if any(sign in text for sign in _UNAVAILABLE):
        return RetriableError(f"reading from Kafka: {cause}", code="broker_unavailable")
    if LARGE_RECORD_TEXT in text:
        return RetriableError(LARGE_RECORD_TEXT, code=LARGE_RECORD)
    if _RESULTS_FULL in text:
        return RetriableError(
            "what a batch left, dead letters for the most part, takes more memory than "
            "spark.driver.maxResultSize, and it cannot be made smaller",
            code=LETTERS_FULL,
        )
    return RetriableError(f"the batch failed in Spark: {cause}", code="batch_failed")


def _cause(text: str) -> str:
    """The innermost exception's line of a Java or Python trace: records are never in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    python = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "Caused by: ")) and _is_error_text(line)
    ]
    chosen = python[-1] if python else (causes[-1] if causes else (lines[0] if lines else ""))
    return chosen.removeprefix("Caused by: ")[:500]


def _classes(text: str) -> str:
    """The classes and conditions of errors in a trace, without their messages."""
    found = dict.fromkeys(a or b for a, b in _CLASS_OR_CONDITION.findall(text))
    return ", ".join(list(found)[-_CLASSES_MAX:]) or "no class is named"


def _is_error_text(line: str) -> bool:
    name, separator, _ = line.partition(": ")
    return bool(separator) and name.endswith(("Error", "Exception")) and "(" not in name

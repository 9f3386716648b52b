"""Options of Spark's Kafka source for one task.

Rules of this file:
- Secrets are only in the options. Options reach the JVM over py4j, never over a command line.
- All reads of a task have one consumer group id, because executors cache consumers by it. The id
  changes with the options: Spark refuses one id with two sets of options.
- Every read names its partitions and offsets. Spark never reads a position from a consumer group.

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
from connect.gateways.kafka.kafka_errors import LOGIN_REFUSED, REFUSED, TLS_FAILED, UNAVAILABLE
from connect.gateways.kafka.kafka_properties import client_properties, to_java
from connect.model.layout import TopicPartition
from connect.redaction.foreign_text import are_hidden
from worker.batch.error_rows import DEAD_LETTERS_FULL, LARGE_RECORD

FETCH = {
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    "max.poll.records": "5000",
    # the default waits half a second per partition at the end of the log
    "fetch.max.wait.ms": "10",
    "request.timeout.ms": "30000",
    "default.api.timeout.ms": "60000",
}
POLL_OPTION = "kafka.max.poll.records"
HEADERS_OPTION = "includeHeaders"
_SET_BY_SPARK = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "group.instance.id",
        "interceptor.classes",
        "isolation.level",
        "key.deserializer",
        "partition.assignment.strategy",
        "value.deserializer",
    }
)
_PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "retries",
        "transaction.timeout.ms",
    }
)
_DATA_LOST = (
    "Some data may have been lost",
    "OffsetOutOfRangeException",
    "LogTruncationException",
    "KAFKA_DATA_LOSS",
)
LARGE_RECORD_TEXT = "a record is much larger than the mean of the previous records"
BATCH_FAILED = "batch_failed"
_RESULTS_FULL = "bigger than spark.driver.maxResultSize"
_TIMESTAMP_UNREADABLE = ("long overflow", "millisToMicros", "KafkaRecordToRowConverter")
_CLASS_OR_CONDITION = re.compile(
    r"^(?:Caused by: )?((?:\w+\.)*[A-Z]\w{0,60}(?:Error|Exception))(?=:|\s*$)"
    r"|(?<=\[)([A-Z][A-Z0-9_.]+)(?=\])",
    re.MULTILINE,
)
_CLASSES_MAX = 5
_REFUSALS = (
    ("SaslAuthenticationException", LOGIN_REFUSED, "check sasl.mechanism and sasl.jaas.config"),
    ("LoginException", LOGIN_REFUSED, "check sasl.mechanism and sasl.jaas.config"),
    ("SslAuthenticationException", TLS_FAILED, "check ssl.truststore.* and ssl.keystore.*"),
    (
        "TopicAuthorizationException",
        REFUSED,
        "the consumer's principal needs the ACL Read on these topics",
    ),
    (
        "GroupAuthorizationException",
        REFUSED,
        "the consumer's principal needs the ACL Read on this group",
    ),
)
_UNAVAILABLE = (
    "org.apache.kafka.common.errors.TimeoutException",
    "DisconnectException",
    "Cannot fetch record for offset",  # Spark's consumer, after its time limit
)


def source_options(
    node: Mapping[str, str],
    consumer_overrides: Mapping[str, str],
    *,
    task: str,
    has_headers: bool,
) -> dict[str, str]:
    """Return options for ``spark.read`` and ``spark.readStream``, without partitions and offsets.

    Args:
        node: node properties.
        consumer_overrides: the connector's ``consumer.override.*``, prefix removed.
        task: name of the task, unique in the cluster; part of the consumer group id.
        has_headers: whether to read the record headers.

    Raises:
        ConfigError: no ``bootstrap.servers``, or a login or key that cannot be used.
    """
    properties = client_properties(node, consumer_overrides, prefix="consumer.")
    client = {**FETCH, **to_java(properties)}
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
        HEADERS_OPTION: str(has_headers).lower(),
    }


def range_options(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """Return the options that a batch read adds: two sets of offsets of the same partitions."""
    return {
        "assign": assignment(starts),
        "startingOffsets": offsets_text(starts),
        "endingOffsets": offsets_text(ends),
    }


def stream_options(starts: Mapping[TopicPartition, int], records_max: int) -> dict[str, str]:
    """Return the options that a stream adds: its first offsets, and the size of micro-batches."""
    return {
        "assign": assignment(starts),
        "startingOffsets": offsets_text(starts),
        "maxOffsetsPerTrigger": str(records_max),
    }


def assignment(partitions: Mapping[TopicPartition, Any]) -> str:
    """Return the ``assign`` option: topic to partitions."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return json.dumps(topics)


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the ``startingOffsets`` or ``endingOffsets`` option: topic to partition to offset."""
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(topics)


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse the text of ``offsets_text``, or the last line of a checkpoint's offsets file."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def check_positions(
    positions: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, tuple[int, int]],
) -> None:
    """Check that the logs contain all records from the positions on.

    Raises:
        DataLost: ``source_data_lost`` with the range that retention deleted, or
            ``source_log_reset`` when the log ends before the position (a re-created topic).
    """
    for tp, position in sorted(positions.items()):
        start, end = watermarks[tp]
        if position < start:
            raise DataLost(
                f"source records [{position}, {start}) are deleted: the log starts at {start}",
                code="source_data_lost",
                topic=tp.topic,
                partition=tp.partition,
                offset=position,
                log_start_offset=start,
            )
        if position > end:
            raise DataLost(
                f"the next source offset is {position}, but the log ends at {end}: "
                "the topic was created again or truncated",
                code="source_log_reset",
                topic=tp.topic,
                partition=tp.partition,
                offset=position,
                log_end_offset=end,
            )


def map_spark_error(error: BaseException, *, is_query: bool = False) -> IcefloeError:
    """Map an exception of a Spark read; the message names the cause in one line.

    Args:
        error: an exception of Spark or py4j; an IcefloeError is returned unchanged.
        is_query: whether a query of a connector ran in the read. Messages of Spark may then quote
            files and values, so only the class names of the errors are kept.
    """
    if isinstance(error, IcefloeError):
        return error
    text = str(error)
    if any(sign in text for sign in _DATA_LOST):
        return DataLost(
            "the requested source records are no longer in the log", code="source_data_lost"
        )
    # a trace of a Python worker quotes answers of stores and catalogs
    cause = _classes(text) if is_query or are_hidden() else _cause(text)
    for error_class, code, advice in _REFUSALS:
        if (kafka_text := _kafka_text(text, error_class)) is not None:
            message = f"reading from Kafka: {kafka_text}; {advice}"
            return (ConfigError if code == REFUSED else RetriableError)(message, code=code)
    if any(sign in text for sign in _UNAVAILABLE):
        return RetriableError(f"reading from Kafka: {cause}", code=UNAVAILABLE)
    if LARGE_RECORD_TEXT in text:
        return RetriableError(LARGE_RECORD_TEXT, code=LARGE_RECORD)
    if _RESULTS_FULL in text:
        return RetriableError(
            "the results of a batch, mostly dead letters, need more memory than "
            "spark.driver.maxResultSize, and the batch cannot be smaller",
            code=DEAD_LETTERS_FULL,
        )
    if all(sign in text for sign in _TIMESTAMP_UNREADABLE):
        return RetriableError(
            "a source record has a timestamp after the year 292,277, which Spark cannot read; set "
            "the source offset of its partition after the record, and let the topic refuse such "
            "records with message.timestamp.after.max.ms",
            code="timestamp_unreadable",
        )
    return RetriableError(f"the batch failed in Spark: {cause}", code=BATCH_FAILED)


def _kafka_text(text: str, error_class: str) -> str | None:
    """Return the message of an error of Kafka's client; None without one. It has no records."""
    match = re.search(rf"\b{error_class}: ([^\n]{{1,300}})", text)
    if match is None:
        return None
    line = match[1].strip()
    reason = re.search(r"(?:CertificateException|CertPathBuilderException): ([^\n]{1,200})", text)
    return f"{line}: {reason[1].strip()}" if reason is not None else line


def _cause(text: str) -> str:
    """Return the line of the innermost exception in a Java or Python trace; it has no records."""
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
    """Return the classes and error conditions in a trace, without their messages."""
    classes = dict.fromkeys(a or b for a, b in _CLASS_OR_CONDITION.findall(text))
    return ", ".join(list(classes)[-_CLASSES_MAX:]) or "no error class in the trace"


def _is_error_text(line: str) -> bool:
    name, separator, _ = line.partition(": ")
    return bool(separator) and name.endswith(("Error", "Exception", "Invalid")) and "(" not in name

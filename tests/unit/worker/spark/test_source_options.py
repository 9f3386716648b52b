"""Options of Spark's Kafka source, checks of positions, mapping of Spark's errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.errors import ConfigError, DataLost, RetriableError
from connect.model.layout import TopicPartition
from connect.redaction.foreign_text import hide_foreign_texts
from worker.spark.daemon import without_archives
from worker.spark.source_options import (
    assignment,
    check_positions,
    map_spark_error,
    offsets_text,
    parse_offsets,
    source_options,
)

A = TopicPartition("a.b", 0)
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="secret";'
)
NODE = {"bootstrap.servers": "h:1", "group.id": "cluster", "config.storage.topic": "x"}


def options(
    *, task: str = "g-c-0", node: dict[str, str] | None = None, **own: str
) -> dict[str, str]:
    """Options with connector overrides, ``_`` for ``.``."""
    overrides = {k.replace("_", "."): v for k, v in own.items()}
    return source_options({**NODE, **(node or {})}, overrides, task=task, has_headers=False)


def test_client_settings_reach_spark_under_kafka() -> None:
    """Security settings of the node and overrides of the connector become options."""
    reader_options = options(
        node={"security.protocol": "SASL_SSL", "consumer.sasl.mechanism": "PLAIN"},
        sasl_jaas_config=JAAS,
        client_id="me",
    )
    assert reader_options["kafka.bootstrap.servers"] == "h:1"
    assert reader_options["kafka.security.protocol"] == "SASL_SSL"
    assert reader_options["kafka.sasl.mechanism"] == "PLAIN"
    assert reader_options["kafka.sasl.jaas.config"] == JAAS
    assert reader_options["kafka.client.id"] == "me"
    assert not any("storage.topic" in key for key in reader_options)


def test_settings_of_the_protocol_cannot_be_overridden() -> None:
    """Isolation level, group, reset policy and deserializers are fixed."""
    reader_options = options(
        isolation_level="read_uncommitted",
        auto_offset_reset="latest",
        key_deserializer="x",
        group_id="mine",
        acks="1",
    )
    assert reader_options["kafka.isolation.level"] == "read_committed"
    assert reader_options["failOnDataLoss"] == "true"
    assert reader_options["kafka.group.id"].startswith("icefloe-source-g-c-0-")
    assert (
        not {"kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.acks"}
        & reader_options.keys()
    )


def test_group_follows_task_and_options() -> None:
    """Executors cache consumers by group: only equal options share a group."""
    group = options()["kafka.group.id"]
    assert options()["kafka.group.id"] == group
    assert options(fetch_max_bytes="1")["kafka.group.id"] != group
    assert options(task="g-c-1")["kafka.group.id"] != group


def test_fetch_settings_can_be_overridden() -> None:
    """The measured fetch sizes are defaults."""
    assert options()["kafka.fetch.max.wait.ms"] == "10"
    assert options(fetch_max_wait_ms="100")["kafka.fetch.max.wait.ms"] == "100"


def test_a_read_needs_bootstrap_servers() -> None:
    """A read needs ``bootstrap.servers``."""
    with pytest.raises(ConfigError, match="bootstrap"):
        source_options({}, {}, task="t", has_headers=False)


@given(
    st.dictionaries(
        st.tuples(st.text(min_size=1), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)
    )
)
def test_offsets_survive_the_text_form(offsets: dict[tuple[str, int], int]) -> None:
    """The text of the options is that of a checkpoint."""
    given_offsets = {TopicPartition(*tp): at for tp, at in offsets.items()}
    assert parse_offsets(offsets_text(given_offsets)) == given_offsets
    named = json.loads(assignment(given_offsets))
    assert {(t, p) for t, ps in named.items() for p in ps} == set(given_offsets)


@pytest.mark.parametrize("position", [5, 7, 9])
def test_positions_inside_the_log_are_accepted(position: int) -> None:
    """From the first retained record to the end."""
    check_positions({A: position}, {A: (5, 9)})


def test_deleted_range_is_named() -> None:
    """Retention deleted records before they were read: the error names their range."""
    with pytest.raises(DataLost, match=r"\[3, 5\)") as e:
        check_positions({A: 3}, {A: (5, 9)})
    assert e.value.code == "source_data_lost"
    assert e.value.coordinates["topic"] == "a.b"


def test_log_that_ends_before_the_position_is_another_log() -> None:
    """The topic was recreated: its old offsets have no meaning."""
    with pytest.raises(DataLost) as e:
        check_positions({A: 10}, {A: (0, 9)})
    assert e.value.code == "source_log_reset"


OVERFLOW = (
    "Caused by: java.lang.ArithmeticException: long overflow\n"
    "\tat org.apache.spark.sql.catalyst.util.SparkDateTimeUtils.millisToMicros(S.scala:1)\n"
)


@pytest.mark.parametrize(
    ("text", "kind", "code", "message"),
    [
        ("x\nCaused by: Some data may have been lost", DataLost, "source_data_lost", "no longer"),
        (
            "a\nCaused by: org.apache.kafka.common.errors.TimeoutException: 60 s",
            RetriableError,
            "broker_unavailable",
            "60 s",
        ),
        (
            (
                "a\nCaused by: java.util.concurrent.TimeoutException: "
                "Cannot fetch record for offset 7 in 60000 milliseconds"
            ),
            RetriableError,
            "broker_unavailable",
            "offset 7 in 60000",
        ),
        (
            'Traceback\n  File "x.py", line 3\npyarrow.lib.ArrowInvalid: bad\nOSError: disk full',
            RetriableError,
            "batch_failed",
            "OSError: disk full",
        ),
        ("Job aborted\nCaused by: java.io.IOException: no", RetriableError, "batch_failed", "no"),
        (
            f"{OVERFLOW}\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.$1(K.scala:4)",
            RetriableError,
            "timestamp_unreadable",
            "message.timestamp.after.max.ms",
        ),
        (
            OVERFLOW,  # of a query, for example
            RetriableError,
            "batch_failed",
            "long overflow",
        ),
        (
            "Total size of results of 3 tasks (1.2 GiB) is bigger than spark.driver.maxResultSize",
            RetriableError,
            "dead_letters_full",
            "maxResultSize",
        ),
    ],
)
def test_spark_errors_are_mapped(text: str, kind: type[Exception], code: str, message: str) -> None:
    """The error class decides what to do; the message has the cause and no trace."""
    error = map_spark_error(RuntimeError(text))
    assert type(error) is kind
    assert error.code == code
    assert message in str(error)
    assert "\n" not in str(error)


def test_texts_of_stores_are_not_shown() -> None:
    """If foreign texts are hidden, the trace of a Python worker has only class names."""
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nOSError: When writing: HTTP status 403: canary of the store\n'
    )
    assert "canary" in str(map_spark_error(RuntimeError(text)))
    hide_foreign_texts()
    try:
        message = str(map_spark_error(RuntimeError(text)))
    finally:
        hide_foreign_texts(are_hidden=False)
    assert "canary" not in message
    assert "OSError" in message


def test_archives_of_spark_are_removed_from_the_module_path() -> None:
    """That of the standard library stays."""
    path = ["", "/x/pyspark.zip", "/x/py4j-src.zip", "/x/a.jar", "/lib/python311.zip", "/lib/y"]
    assert without_archives(path) == ["", "/lib/python311.zip", "/lib/y"]

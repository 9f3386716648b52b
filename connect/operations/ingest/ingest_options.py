"""The options of ``icefloe ingest``, and the connector and node properties that they result in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How the values of records are encoded; at most one of the two formats is set.

    Attributes:
        json: URL of a schema registry; any other text is JSON without schema.
        avro: URL of a schema registry, or a file with an Avro schema.
        is_gzip: whether JSON values are compressed.
    """

    json: str | None = None
    avro: str | None = None
    is_gzip: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read.

    Attributes:
        topic: the Kafka topic.
        app_id: identity of the job, which is also the connector's name.
        brokers: comma-separated.
        settings: properties of Kafka's clients, by librdkafka's names or Java's.
        value_format: of the records.
        auto_offset_reset: ``earliest`` or ``latest``.
        seek_offsets: last offset not to read, by partition.
        is_bounded: end at the present end of the topic.
        daemon_group: consumer group of kafka-delta-ingest, which must not read the topic; None
            is not checked.
    """

    topic: str
    app_id: str = "kafka_delta_ingest"
    brokers: str = "localhost:9092"
    settings: Mapping[str, str] = field(default_factory=dict)
    value_format: ValueFormat = field(default_factory=ValueFormat)
    auto_offset_reset: str = "earliest"
    seek_offsets: Mapping[int, int] = field(default_factory=dict)
    is_bounded: bool = False
    daemon_group: str | None = None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What is written.

    Attributes:
        location: a folder or URL of a Delta table, or the name of an Iceberg table.
        is_iceberg: whether the table is an Iceberg table.
        allowed_latency_s: interval of commits.
        min_bytes_per_file: size at which a file ends.
        transforms: ``PROPERTY: SOURCE``, in order.
        dead_letter_location: as ``location``; None skips records with errors.
        statsd_endpoint: ``host:port``; empty for none.
        settings: further keys of the connector; they replace all others.
    """

    location: str
    is_iceberg: bool = False
    allowed_latency_s: int = 300
    min_bytes_per_file: int = 134_217_728
    transforms: Sequence[str] = ()
    dead_letter_location: str | None = None
    statsd_endpoint: str = "localhost:8125"
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestJob:
    """A connector and the node that runs it; secrets are placeholders in both.

    Attributes:
        connector: configuration, ``name`` included.
        node: properties of the node.
        table: name of the table that the connector writes to.
        secrets: variables to add to the environment, to which placeholders refer.
        notes: settings without effect, for the user.
        daemon_group: as in ``SourceOptions``.
    """

    connector: Mapping[str, str]
    node: Mapping[str, str]
    table: str
    secrets: Mapping[str, str]
    notes: Sequence[str] = ()
    daemon_group: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the connector."""
        return self.connector["name"]

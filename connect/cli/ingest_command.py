"""``icefloe ingest``: one topic into one table, with the options of kafka-delta-ingest."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from connect.cli.terminal import echo, run_and_exit
from connect.errors import ConfigError

if TYPE_CHECKING:
    from connect.operations.ingest.ingest_options import IngestJob


class TableFormat(StrEnum):
    """What LOCATION is."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class Printed(StrEnum):
    """What is printed instead of a run."""

    CONNECTOR = "connector"
    NODE = "node"


class OffsetReset(StrEnum):
    """Where partitions without offsets start."""

    EARLIEST = "earliest"
    LATEST = "latest"


Pairs = list[str] | None
Topic = Annotated[str, typer.Argument(envvar="KAFKA_TOPIC", help="Kafka topic.")]
Location = Annotated[
    str,
    typer.Argument(
        envvar="TABLE_LOCATION",
        help="Delta table: folder, s3:// or abfss://. Iceberg: NAMESPACE.TABLE.",
    ),
]
More = Annotated[Pairs, typer.Argument(metavar="[...]", help="More values of -t and -K.")]
Kafka = Annotated[
    str, typer.Option("--kafka", "-k", envvar="KAFKA_BROKERS", help="Brokers, host:port,...")
]
DAEMON_GROUP = "kafka_delta_ingest"  # its default
Group = Annotated[
    str,
    typer.Option(
        "--consumer_group",
        "-g",
        envvar="KAFKA_CONSUMER_GROUP",
        help="Group of kafka-delta-ingest: a start is refused while it reads the topic.",
    ),
]
IgnoreDaemon = Annotated[
    bool,
    typer.Option(
        "--ignore_running_daemon",
        help="Start although the group of kafka-delta-ingest reads the topic.",
    ),
]
AppId = Annotated[
    str,
    typer.Option("--app_id", "-a", envvar="APP_ID", help="Identity of the job; name it per topic."),
]
Seek = Annotated[
    str | None,
    typer.Option(
        "--seek_offsets",
        envvar="KAFKA_SEEK_OFFSETS",
        help='Last offsets not to read, if none are stored: {"0":123}.',
    ),
]
Reset = Annotated[
    OffsetReset,
    typer.Option(
        "--auto_offset_reset",
        "-o",
        envvar="KAFKA_AUTO_OFFSET_RESET",
        help="Start of partitions without offsets.",
    ),
]
Latency = Annotated[
    int,
    typer.Option("--allowed_latency", "-l", envvar="ALLOWED_LATENCY", min=0, help="Seconds."),
]
Messages = Annotated[
    int | None,
    typer.Option(
        "--max_messages_per_batch", "-m", envvar="MAX_MESSAGES_PER_BATCH", min=1, help="No effect."
    ),
]
MinBytes = Annotated[
    int,
    typer.Option(
        "--min_bytes_per_file",
        "-b",
        envvar="MIN_BYTES_PER_FILE",
        min=1,
        help="Size at which a file ends; files are smaller if a commit is due before.",
    ),
]
Transform = Annotated[
    Pairs,
    typer.Option(
        "--transform",
        "-t",
        metavar="PROPERTY: SOURCE",
        help="Sets a field to a JMESPath expression, or to kafka.offset, kafka.partition, "
        "kafka.topic, kafka.timestamp. Also in TRANSFORMS, one in each line.",
    ),
]
LetterLocation = Annotated[
    str | None,
    typer.Option(
        "--dlq_table_location", envvar="DLQ_TABLE_LOCATION", help="Table for dead letters."
    ),
]
LetterTransform = Annotated[
    Pairs, typer.Option("--dlq_transform", help="Not supported: refused.", hidden=True)
]
Checkpoints = Annotated[
    bool,
    typer.Option(
        "--checkpoints", "-c", envvar="WRITE_CHECKPOINTS", help="Always on: every 10 commits."
    ),
]
KafkaSetting = Annotated[
    Pairs,
    typer.Option(
        "--kafka_setting",
        "--Kafka",
        "-K",
        metavar="KEY=VALUE",
        help="Property of Kafka's clients, by librdkafka's name or Java's.",
    ),
]
Statsd = Annotated[
    str, typer.Option("--statsd_endpoint", "-s", envvar="STATSD_ENDPOINT", help="host:port.")
]
Json = Annotated[
    str | None,
    typer.Option("--json", envvar="JSON_REGISTRY", help="Schema registry URL, or any text."),
]
Avro = Annotated[
    str | None,
    typer.Option("--avro", envvar="AVRO_REGISTRY", help="Schema registry URL, or a schema file."),
]
SoeAvro = Annotated[str | None, typer.Option("--soe-avro", help="Not supported.", hidden=True)]
End = Annotated[
    bool,
    typer.Option(
        "--ends_at_latest_offsets",
        "-e",
        envvar="ENDS_AT_LATEST_OFFSETS",
        help="End at the present end of the topic.",
    ),
]
Gzip = Annotated[
    bool, typer.Option("--decompress_gzip", envvar="DECOMPRESS_GZIP", help="JSON is compressed.")
]
Format = Annotated[TableFormat, typer.Option("--format", help="Format of LOCATION.")]
Setting = Annotated[
    Pairs,
    typer.Option("--set", metavar="KEY=VALUE", help="Key of the connector, such as a catalog's."),
]
Print = Annotated[
    Printed | None,
    typer.Option("--print", help="Print the connector or the node's properties, and end."),
]


def ingest(
    topic: Topic,
    location: Location,
    more: More = None,
    *,
    kafka: Kafka = "localhost:9092",
    consumer_group: Group = DAEMON_GROUP,
    app_id: AppId = "kafka_delta_ingest",
    seek_offsets: Seek = None,
    auto_offset_reset: Reset = OffsetReset.EARLIEST,
    allowed_latency: Latency = 300,
    max_messages_per_batch: Messages = None,
    min_bytes_per_file: MinBytes = 134_217_728,
    transform: Transform = None,
    dlq_table_location: LetterLocation = None,
    dlq_transform: LetterTransform = None,
    checkpoints: Checkpoints = False,
    kafka_setting: KafkaSetting = None,
    statsd_endpoint: Statsd = "localhost:8125",
    json_registry: Json = None,
    avro: Avro = None,
    soe_avro: SoeAvro = None,
    end: End = False,
    decompress_gzip: Gzip = False,
    table_format: Format = TableFormat.DELTA,
    setting: Setting = None,
    printed: Print = None,
    ignore_running_daemon: IgnoreDaemon = False,
) -> None:
    """Ingest a topic into a table until SIGTERM, with the options of kafka-delta-ingest.

    The state is in the folder icefloe-state; ICEFLOE_... replaces properties of the node.
    """
    from connect.operations.ingest import ingest_options as options  # noqa: PLC0415 - on use
    from connect.operations.ingest import translation  # noqa: PLC0415 - on use

    del checkpoints  # every format writes its own
    _refuse(soe_avro, dlq_transform)
    transforms, settings = _pairs(transform, kafka_setting, more)
    source = options.SourceOptions(
        topic=topic,
        app_id=app_id,
        brokers=kafka,
        settings=settings,
        value_format=options.ValueFormat(json_registry, avro, decompress_gzip),
        auto_offset_reset=auto_offset_reset.value,
        seek_offsets=translation.parse_seek_offsets(seek_offsets) if seek_offsets else {},
        is_bounded=end,
        daemon_group=None if ignore_running_daemon else consumer_group,
    )
    table = options.TableOptions(
        location=location,
        is_iceberg=table_format is TableFormat.ICEBERG,
        allowed_latency_s=allowed_latency,
        min_bytes_per_file=min_bytes_per_file,
        transforms=transforms,
        dead_letter_location=dlq_table_location,
        statsd_endpoint=statsd_endpoint,
        settings=dict(translation.parse_pair(text, "=") for text in setting or ()),
    )
    job = translation.translate(source, table, os.environ)
    ignored = {"max_messages_per_batch": max_messages_per_batch}
    for note in (*job.notes, *(f"--{k} has no effect" for k, v in ignored.items() if v)):
        echo(f"note: {note}", err=True)
    if printed is None:
        _run(job)
    else:
        _print(job, printed)


def _refuse(soe_avro: str | None, letter_transforms: Pairs) -> None:
    if soe_avro is not None:
        raise ConfigError("--soe-avro (Avro's single-object encoding) is not supported; use --avro")
    if letter_transforms or os.environ.get("DLQ_TRANSFORMS"):
        raise ConfigError(
            "--dlq_transform is not supported: the dead letter table has the columns topic, "
            "partition, offset, timestamp, key, value, stage, code, message and others",
        )


def _pairs(transform: Pairs, setting: Pairs, more: Pairs) -> tuple[list[str], dict[str, str]]:
    """Return transforms and client settings, with those that follow another value of an option."""
    from connect.operations.ingest.translation import parse_pair  # noqa: PLC0415 - on use

    transforms, settings = list(transform or ()), list(setting or ())
    for text in more or ():
        # a name has neither character, so the first one decides
        first = next((char for char in text if char in ":="), "")
        (settings if first == "=" else transforms).append(text)
    if not transforms:
        lines = os.environ.get("TRANSFORMS", "").splitlines()
        transforms = [line for line in lines if line.strip()]
    return transforms, dict(parse_pair(text, "=") for text in settings)


def _print(job: IngestJob, printed: Printed) -> None:
    if printed is Printed.CONNECTOR:
        echo(json.dumps({"name": job.name, "config": dict(job.connector)}, indent=2))
    else:
        for key, value in job.node.items():
            text = value.replace("\\", "\\\\").replace("\n", "\\n")
            echo(f"{key}={text}")
    for name in job.secrets:
        echo(f"note: set the environment variable {name} to its secret", err=True)


def _run(job: IngestJob) -> None:
    from connect.node.ingest_run import run_ingest  # noqa: PLC0415 - on use

    # the secrets of the command line are placeholders in all configurations
    os.environ.update(job.secrets)
    run_and_exit(lambda: run_ingest(job, os.environ))

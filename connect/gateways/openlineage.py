"""Sends lineage events to a receiver of OpenLineage, with its own client library.

Rules of this file:
- Only a node that sends lineage events imports this file, and with it the library.
- The address is the operator's own, so the limits on what connectors may reach do not apply.
- A redirect is not followed: the address and its key are for one server.
- The library's client is not used, only its event classes and transports: the client would read
  configuration files, run git, and repeat requests for an unlimited time.
- Errors contain neither the address nor the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import attr
import requests
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    OutputDatasetFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.serde import Serde
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.http_status import is_temporary
from connect.gateways.kafka.kafka_clients import librdkafka_config
from connect.gateways.kafka.kafka_errors import mapped
from connect.model.lineage_event import LineageEvent, OutputTable, TableTotals, table_dataset
from connect.model.table_description import ColumnDescription
from connect.redaction.secret_values import KNOWN

PRODUCER: Final = f"urn:icefloe:{version('icefloe')}"
COMMIT_FACET: Final = "icefloe_commit"
COMMIT_SCHEMA: Final = "urn:icefloe:lineage:1-0-0#/$defs/IcefloeCommitOutputDatasetFacet"

set_producer(PRODUCER)  # of the events and their facets


@attr.define
class IcefloeCommitOutputDatasetFacet(OutputDatasetFacet):
    """The last commit of a table that an event covers; docs/how-to/lineage.md has its schema."""

    snapshotId: str  # noqa: N815 - OpenLineage's style of names
    commitId: str  # noqa: N815
    commits: int
    validThrough: str | None = None  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return COMMIT_SCHEMA


class Transport(Protocol):
    """Sends events, one at a time."""

    def send(self, event: LineageEvent) -> None:
        """Send one event.

        Raises:
            RetriableError: ``lineage_unavailable``, the same event may be accepted later.
            IcefloeError: any other, the receiver does not accept this event.
        """
        ...


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Options of OpenLineage's transport of that type.

    Attributes:
        url: base address.
        endpoint: path.
        api_key: a secret; None sends none.
        timeout_s: of a request.
        is_compressed: with gzip.
    """

    url: str
    endpoint: str
    api_key: str | None
    timeout_s: float
    is_compressed: bool


class HttpSender:
    """Posts events.

    Raises:
        ConfigError: ``lineage``, the address is no HTTP address.
    """

    def __init__(self, options: HttpOptions) -> None:
        try:
            parts = urlsplit(options.url.strip())
            is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError(
                "icefloe.lineage.transport.url must be http(s)://host[:port]", code="lineage"
            )
        for secret in (parts.password, options.api_key):
            if secret:
                KNOWN.add(secret)
        session = requests.Session()
        session.max_redirects = 0
        config: dict[str, Any] = {
            "url": options.url,
            "endpoint": options.endpoint,
            "timeout": options.timeout_s,
            "retry": {"total": 0, "read": 0, "connect": 0, "status_forcelist": []},
            "session": session,
        }
        if options.api_key:
            config["auth"] = {"type": "api_key", "apiKey": options.api_key}
        if options.is_compressed:
            config["compression"] = "gzip"
        self._transport = HttpTransport(HttpConfig.from_dict(config))

    def send(self, event: LineageEvent) -> None:
        """Send one event, as ``Transport``."""
        try:
            self._transport.emit(run_event(event))
        except requests.HTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            text = f"the receiver of lineage events answered with HTTP {status}"
            if is_temporary(status):
                raise RetriableError(text, code="lineage_unavailable") from None
            raise ConfigError(text, code="lineage_refused") from None
        except requests.TooManyRedirects:
            raise ConfigError(
                "the receiver of lineage events answered with a redirect, which is not followed; "
                "set icefloe.lineage.transport.url to its target",
                code="lineage_refused",
            ) from None
        except (requests.RequestException, OSError) as error:
            raise RetriableError(
                f"the receiver of lineage events does not answer: {type(error).__name__}; check "
                "icefloe.lineage.transport.url",
                code="lineage_unavailable",
            ) from None  # the text of the exception may contain the address


class FileSender:
    """Appends events to a local file, one JSON per line.

    Raises:
        ConfigError: ``lineage``, no local path, or no folder.
    """

    def __init__(self, path: str) -> None:
        if "://" in path or not Path(path).absolute().parent.is_dir():
            raise ConfigError(
                "icefloe.lineage.transport.log_file_path must be a local file in a folder that "
                f"exists, not {path!r}",
                code="lineage",
            )
        self._transport = FileTransport(FileConfig(log_file_path=path, append=True))

    def send(self, event: LineageEvent) -> None:
        """Write one event, as ``Transport``."""
        try:
            self._transport.emit(run_event(event))
        except (RuntimeError, OSError) as error:  # the library raises the first for any other
            raise RetriableError(
                f"lineage events cannot be written: {error}", code="lineage_unavailable"
            ) from None


class KafkaSender:
    """Produces events, each with the key that OpenLineage's own transport gives it.

    That transport reports no failed delivery and waits without a limit, so this one has a producer
    of its own.

    Args:
        properties: Java-named properties of the producer.
        topic: of the events.
        timeout_s: of a delivery.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, timeout_s: float) -> None:
        limit_ms = int(timeout_s * 1000)
        own: dict[str, Any] = {"message.timeout.ms": limit_ms, "linger.ms": 0}
        settings = librdkafka_config(properties, "producer", **own)
        settings.pop("delivery.timeout.ms", None)  # another name of the limit
        settings.pop("transaction.timeout.ms", None)
        with mapped("opening the producer of lineage events", code="lineage"):
            self._producer = Producer(settings)
        self._topic = topic
        self._timeout_s = timeout_s

    def send(self, event: LineageEvent) -> None:
        """Produce one event and wait until it is acknowledged, as ``Transport``."""
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        key = f"run:{event.namespace}/{event.job}".encode()
        value = Serde.to_json(run_event(event)).encode()
        try:
            self._producer.produce(self._topic, value, key, on_delivery=on_delivery)
            left = self._producer.flush(self._timeout_s + 1)
        except KafkaException as error:  # refused before it was queued, such as too large
            raise ConfigError(
                f"a lineage event cannot be produced: {error.args[0].name()}",
                code="lineage_refused",
            ) from None
        except BufferError:
            left = 1
        if failures and failures[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise ConfigError(
                "the broker refuses a lineage event: too large; raise max.message.bytes of "
                "the topic",
                code="lineage_refused",
            )
        if failures or left:
            reason = failures[0].name() if failures else "no answer"
            raise RetriableError(
                f"lineage events cannot be produced to {self._topic}: {reason}",
                code="lineage_unavailable",
            )


def run_event(event: LineageEvent) -> RunEvent:
    """Return an event as OpenLineage's class.

    Raises:
        IcefloeError: ``lineage``, OpenLineage's class does not accept the values.
    """
    try:
        return _run_event(event)
    except (TypeError, ValueError) as error:
        raise IcefloeError(f"no lineage event can be made: {error}", code="lineage") from error


def _run_event(event: LineageEvent) -> RunEvent:
    engine = processing_engine_run.ProcessingEngineRunFacet(
        version=version("icefloe"),
        name="Icefloe",
        openlineageAdapterVersion=version("openlineage-python"),
    )
    run_facets: dict[str, Any] = {"processing_engine": engine}
    if event.error is not None:
        message, _, trace = event.error.partition("\n")
        run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=message, programmingLanguage="PYTHON", stackTrace=trace.strip() or None
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH" if event.is_bounded else "STREAMING",
        integration="ICEFLOE",
        jobType="CONNECTOR",
    )
    return RunEvent(
        eventType=RunState(event.kind),
        eventTime=_instant(event.time_ms * 1000),
        run=Run(str(event.run_id), run_facets),
        job=Job(event.namespace, event.job, {"jobType": kind}),
        inputs=list(_inputs(event)),
        outputs=[
            *(OutputDataset(topic.namespace, topic.name) for topic in event.output_topics),
            *map(_output, event.outputs),
        ],
        producer=PRODUCER,
    )


def _inputs(event: LineageEvent) -> Iterator[InputDataset]:
    for topic in event.inputs:
        facets: dict[str, Any] = {}
        if topic.records is not None:
            facets["inputStatistics"] = (
                input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                    rowCount=topic.records
                )
            )
        yield InputDataset(topic.dataset.namespace, topic.dataset.name, inputFacets=facets)


def _output(table: OutputTable) -> OutputDataset:
    described = table.description
    namespace, name = table_dataset(described.location)
    facets: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=_fields(described.columns)),
        "storage": storage_dataset.StorageDatasetFacet(
            storageLayer=described.format, fileFormat="parquet"
        ),
    }
    if described.catalog is not None:
        known_as = symlinks_dataset.Identifier(described.catalog, described.name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[known_as])
    if table.identity_columns:
        facets["columnLineage"] = _column_lineage(table)
    output_facets: dict[str, Any] = {}
    if (commit := table.commit) is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            str(commit.snapshot_id)
        )
        output_facets = _commit_facets(commit)
    return OutputDataset(namespace, name, facets=facets, outputFacets=output_facets)


def _commit_facets(commit: TableTotals) -> dict[str, Any]:
    claimed_us = commit.valid_through_us
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=commit.records, size=commit.size_bytes, fileCount=commit.files
        ),
        COMMIT_FACET: IcefloeCommitOutputDatasetFacet(
            snapshotId=str(commit.snapshot_id),  # above the numbers that JSON readers keep exactly
            commitId=commit.commit_id,
            commits=commit.commits,
            validThrough=None if claimed_us is None else _instant(claimed_us),
        ),
    }


def _fields(
    columns: Iterable[ColumnDescription],
) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [
        schema_dataset.SchemaDatasetFacetFields(
            name=column.name,
            type=column.type,
            description=column.doc,
            fields=_fields(column.fields) or None,
        )
        for column in columns
    ]


def _column_lineage(table: OutputTable) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    identity = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
    fields = {
        column: column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(
                    source.namespace, source.name, column, transformations=[identity]
                )
                for source in table.sources
            ]
        )
        for column in table.identity_columns
    }
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, dataset=None)


def _instant(instant_us: int) -> str:
    instant = datetime.fromtimestamp(instant_us / 1_000_000, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")

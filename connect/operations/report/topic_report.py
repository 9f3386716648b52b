"""A report: topics as tables, and a SQL query over them.

Rules of this file:
- A report reads committed records that exist when it begins, without any group. It writes nothing.
- Only records that the tables keep are decoded: a superseded record cannot make a report fail.
- Transformations and routes of a connector are not applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from connect.errors import ConfigError, ExitStatus
from connect.model.layout import TopicPartition
from connect.operations.connector_clients import ConnectorCluster, opened_cluster
from connect.operations.record_batches import record_batches
from connect.operations.report.duckdb_query import QueryResult, library, run_query
from connect.operations.report.kept_records import KeptRecords, ReportLimits
from connect.operations.report.record_table import RecordTable, UnusableRecords
from connect.records.conversion.row_converter import ConversionOptions
from connect.records.converters.record_converters import ConvertersByTopic

_NO_KEY: Final = "the record has no key: keep all records with --all"
_BY_OPTIONS: Final = {
    "name": "report",
    "connector.class": "IcebergSink",
    # a configuration says where rows go; a report has no table and opens no catalog
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "table",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://localhost",
}


class TopicMissingError(ConfigError):
    """A topic of the report does not exist."""

    default_code = "topic_missing"
    exit_status = ExitStatus.NO


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to report.

    Attributes:
        sql: the query.
        tables: topic by name of the table in the query; None takes the topics that the
            configuration lists, each as a table with the topic's name.
        config: configuration of a connector; its converters decode the records.
        from_timestamp_ms: start at the first record with this timestamp or a later one; None starts
            at the beginning.
        is_latest: keep the latest record of each key; otherwise all.
        records_max: records that are kept, and rows of the result.
        bytes_max: memory of the records, of their tables, of the query and of its result, each.
    """

    sql: str
    tables: Mapping[str, str] | None
    config: Mapping[str, str]
    from_timestamp_ms: int | None = None
    is_latest: bool = True
    records_max: int = 1_000_000
    bytes_max: int = 2**30


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The answer, and the records that it lacks.

    Attributes:
        result: of the query.
        unusable: records that cannot be decoded, or have no key, by table; only those with some.
    """

    result: QueryResult
    unusable: Mapping[str, UnusableRecords]


def converter_config(tables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration for a report without a connector.

    Args:
        tables: as in ``ReportRequest``.
        options: keys that begin with ``key.converter`` or ``value.converter``.

    Raises:
        ConfigError: another key is given.
    """
    for key in options:
        if not key.startswith(("key.converter", "value.converter")):
            raise ConfigError(
                f"{key} is not an option of a converter: its name begins with key.converter or "
                "value.converter",
                code="usage",
            )
    return {**_BY_OPTIONS, "topics": ",".join(sorted(set(tables.values()))), **options}


def run_report(
    request: ReportRequest, node: Mapping[str, str], environ: Mapping[str, str]
) -> TopicReport:
    """Read topics and run the query.

    Args:
        request: what to report.
        node: node properties.
        environ: for placeholders, as the properties allow.

    Raises:
        TopicMissingError: a topic does not exist.
        ReportTooLarge: a limit is exceeded.
        QueryError: the query is wrong or refused.
        ConfigError: the configuration cannot work, or DuckDB is not installed.
        RetriableError: broker or registry is unavailable.
    """
    library()  # before the topics are read
    limits = ReportLimits(request.records_max, request.bytes_max)
    with opened_cluster(request.config, node, environ) as cluster:
        topics = request.tables
        if topics is None:
            topics = {topic: topic for topic in cluster.config.topics}
        if not topics:
            raise ConfigError("the connector lists no topic: name one with --table", code="usage")
        converters = ConvertersByTopic(cluster.config)
        options = ConversionOptions(timestamp_unit=cluster.config.timestamp_unit)
        kept = {
            topic: _read(cluster, topic, request, limits) for topic in sorted({*topics.values()})
        }
    made: dict[str, tuple[pa.Table, UnusableRecords]] = {}
    for topic, records in kept.items():
        unusable = UnusableRecords()
        for record in records.without_key:
            unusable.add(record, _NO_KEY)
        by = converters.of(topic)
        table = RecordTable(by.key, by.value, options, limits, unusable).of(records.rows())
        made[topic] = table, unusable
    del kept
    tables = {name: made[topic][0] for name, topic in topics.items()}
    result = run_query(
        request.sql, tables, rows_max=request.records_max, bytes_max=request.bytes_max
    )
    by_table = {name: made[topic][1] for name, topic in topics.items()}
    return TopicReport(result, {name: each for name, each in by_table.items() if each.count})


def _read(
    cluster: ConnectorCluster, topic: str, request: ReportRequest, limits: ReportLimits
) -> KeptRecords:
    partitions = cluster.admin.partitions(topic)
    if not partitions:
        raise TopicMissingError(f"topic {topic} does not exist", topic=topic)
    marks = cluster.admin.watermarks(partitions)
    starts: dict[TopicPartition, int] = {tp: start for tp, (start, _) in marks.items()}
    if request.from_timestamp_ms is not None:
        starts = cluster.admin.offsets_at(partitions, request.from_timestamp_ms)
    kept = KeptRecords(limits, is_latest=request.is_latest)
    ends = {tp: end for tp, (_, end) in marks.items()}
    for records, _ in record_batches(cluster.reader, starts, ends):
        kept.add(records)
    return kept

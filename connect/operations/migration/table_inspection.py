"""Tables of a connector as another sink left them: floors, last writer, files that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from connect.config.connector import ConnectorConfig
from connect.config.table_formats import FORMAT_VERSIONS
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway
from connect.operations.migration.migration_report import MigrationReport, TableLeft
from connect.protocol.control_offsets import merged, parse_offsets
from connect.protocol.control_topic import ControlRecord
from connect.protocol.snapshot_ancestry import ancestry, engine, is_cut_off, summary
from control_schemas.events import DataWritten

VALID_THROUGH = ("kafka.connect.valid-through-ts", "kafka.connect.vtts")


class TableInspection:
    """Reads the tables of one connector and adds findings to a report.

    Args:
        config: the connector, placeholders resolved.
        catalog: of the tables.
        report: its groups and control topic are complete.
    """

    def __init__(
        self, config: ConnectorConfig, catalog: CatalogGateway, report: MigrationReport
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._report = report
        self._prefix = f"kafka.connect.offsets.{config.control_topic}."

    def add_tables(self, waiting: Mapping[str, list[ControlRecord]]) -> None:
        """Add every configured table, and every table that announced files wait for.

        Args:
            waiting: announcements that are not below the group's control offsets, by table.

        Raises:
            CommitRefused, RetriableError: the catalog refuses a table or does not answer.
        """
        for name in sorted({*self._config.tables, *waiting}):
            self._report.tables.append(self._table(name, waiting.get(name, ())))
        self._judge_all()

    def _table(self, name: str, waiting: Iterable[ControlRecord]) -> TableLeft:
        report = self._report
        try:
            table = self._catalog.load(tuple(name.split(".")))
        except CommitRefused as e:
            if e.code != "table_missing":
                raise
            files, records = _amount(waiting, {})
            return TableLeft(name, exists=False, pending_files=files, pending_records=records)
        metadata = table.metadata
        branch = self._config.table(name).commit_branch or MAIN_BRANCH
        chain = list(ancestry(metadata, branch))
        groups = {report.group, *(g.name for g in report.groups)}
        floors = {g: floor for g in sorted(groups) if (floor := self._floor(metadata, chain, g))}
        newest = next(
            (s for s in chain if any(k.startswith(self._prefix) for k in summary(s))), None
        )
        marks = {} if newest is None else summary(newest)
        files, records = _amount(waiting, floors.get(report.group, {}))
        self._judge(name, metadata, chain, floors)
        return TableLeft(
            name,
            exists=True,
            floors=floors,
            writer=None if newest is None else engine(marks),
            valid_through=next((marks[key] for key in VALID_THROUGH if key in marks), None),
            pending_files=files,
            pending_records=records,
        )

    def _floor(
        self, metadata: TableMetadata, chain: Iterable[Snapshot], group: str
    ) -> dict[int, int]:
        key = self._prefix + group
        newest = next((text for s in chain if (text := summary(s).get(key))), None)
        mirror = f"icefloe.offsets.{self._config.control_topic}.{group}"
        return merged(parse_offsets(newest), parse_offsets(metadata.properties.get(mirror)))

    def _judge(
        self,
        name: str,
        metadata: TableMetadata,
        chain: list[Snapshot],
        floors: Mapping[str, Mapping[int, int]],
    ) -> None:
        report = self._report
        if metadata.format_version not in FORMAT_VERSIONS:
            report.unsafe(
                "format_version_unsupported",
                f"{name} has format version {metadata.format_version}; only versions 2 and 3 are "
                "written",
            )
        own = report.used(report.group)
        is_unsure = bool(chain) and is_cut_off(chain[-1], metadata)
        if report.group not in floors and is_unsure and own is not None and own.control_offsets:
            mirror = f"icefloe.offsets.{self._config.control_topic}.{report.group}"
            report.unsafe(
                "floor_lost",
                f"snapshots of {name} were expired, and no remaining snapshot has the connector's "
                f"committed offsets: set table property {mirror} to {{}} if no files wait for a "
                "commit",
            )
        for partition, offset in sorted(floors.get(report.group, {}).items()):
            end = report.control_topic.get(partition, (0, 0))[1]
            if offset > end:
                report.unsafe(
                    "control_log_reset",
                    f"{name} holds everything below {offset} of control partition {partition}, "
                    f"which ends at {end}: the topic was deleted and created again, and new files "
                    "would be taken for old ones",
                )

    def _judge_all(self) -> None:
        report = self._report
        if self._config.dynamic_enabled:
            report.note(
                "dynamic_tables",
                "records name the tables: only tables with announced files are checked",
            )
        for table in report.tables:
            if table.pending_files and not table.exists:
                report.unsafe(
                    "table_missing",
                    f"{table.pending_files} files are announced for {table.name}, which does not "
                    "exist",
                )
            elif table.pending_files:
                report.note(
                    "pending",
                    f"{table.pending_files} files with {table.pending_records} rows are announced "
                    f"for {table.name} and not in it: Icefloe commits them first",
                )
        has_offsets = any(g.source_offsets or g.control_offsets for g in report.groups)
        committed_tables = [table.name for table in report.tables if report.group in table.floors]
        if committed_tables and not has_offsets:
            report.unsafe(
                "offsets_lost",
                f"{', '.join(committed_tables)} hold commits of this connector, but its groups "
                "have no offsets: they expired or were deleted; set the source offsets before "
                "the start",
            )


def _amount(records: Iterable[ControlRecord], floor: Mapping[int, int]) -> tuple[int, int]:
    """Return files and rows of the announcements that the floor does not cover."""
    files = 0
    rows = 0
    for record in records:
        payload = record.event.payload if record.event is not None else None
        if isinstance(payload, DataWritten) and record.offset >= floor.get(record.partition, 0):
            data = payload.data_files or ()
            files += len(data) + len(payload.delete_files or ())
            rows += sum(file.record_count for file in data)
    return files, rows

"""Tables of format version 3 whose rows a connector changes, and what all readers read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from connect.gateways.catalog.catalog import CatalogGateway
from connect.records.tables.delete_specs import unpartitioned_spec_added
from coordinator.commit.iceberg.committer import Committer
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql
from tests.support.stack import unique_name
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    partition_of,
    reference,
    table_commit,
    written_file,
)
from tests.support.upserts import committed, delete_file

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
PROPERTIES = {
    "format-version": "3",
    "commit.manifest.min-count-to-merge": "3",
    "write.delete.distribution-mode": "none",
    **{f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")},
}
LINEAGE = "_row_id, _last_updated_sequence_number"


class Changes:
    """A table of format version 3, and a connector with upserts.

    Args:
        catalog: where the table is.
        spec: of the table.
        mode: in which the connector removes rows.
        properties: of the table, in addition.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        mode: str = "merge-on-read",
        **properties: str,
    ) -> None:
        self.catalog = catalog
        name = unique_name(f"changed_{uuid4().hex[:8]}").replace("-", "_")
        table = catalog.create(("db", name), SCHEMA, spec, properties={**PROPERTIES, **properties})
        if spec.fields:
            table = catalog.commit(table, *unpartitioned_spec_added(table))
        self.identifier = table.name()
        self.sql = f"rest.db.{name}"
        self.settings = {
            "iceberg__tables__upsert_mode_enabled": "true",
            "iceberg__tables__write_mode": mode,
        }
        self.committer = self.new_committer()
        self.offset = 0

    def new_committer(self, **settings: str) -> Committer:
        """A coordinator's committer."""
        config = connector("c", [".".join(self.identifier)], **{**self.settings, **settings})
        return Committer(self.catalog, config, QuickClock())

    def round(self, *steps: tuple[dict[int, str], Sequence[int]]) -> None:
        """Commit steps of rows to write, and keys to delete; every written key is deleted, too."""
        table = self.table()
        events = []
        for rows, gone in steps:
            written = [{"id": key, "name": text} for key, text in rows.items()]
            parts: dict[Any, list[dict[str, Any]]] = {}
            for each in written:
                values = partition_of(table, each) if table.spec().fields else ()
                parts.setdefault(values, []).append(each)
            files = [written_file(table, p, partition=values) for values, p in parts.items()]
            keys = [{"id": key} for key in (*rows, *gone)]
            deletes = [delete_file(table, keys, ["id"])] if keys else []
            events.append(
                announced(reference(table), files, deletes, offset=self.offset, batch=self.offset)
            )
            self.offset += 1
        committed(self.committer.commit(table_commit(events)))

    def append(self, rows: dict[int, str]) -> None:
        """Commit rows without deletes."""
        table = self.table()
        file = written_file(table, [{"id": key, "name": text} for key, text in rows.items()])
        event = announced(reference(table), [file], offset=self.offset, batch=self.offset)
        self.offset += 1
        committed(self.committer.commit(table_commit([event])))

    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load(self.identifier)


def same_rows(t: Changes, wanted: dict[int, str], spark: Sql, duck: Sql, java: JavaReader) -> None:
    """All readers have these rows."""
    content = [[key, wanted[key]] for key in sorted(wanted)]
    assert spark(f"select id, name from {t.sql} order by id") == content
    table = t.table()
    place = f"iceberg_scan('{table.metadata_location}')"
    assert duck(f"select id, name from {place} order by id") == content
    assert sorted([r["id"], r["name"]] for r in java.rows(t.identifier)) == content
    assert sorted([r["id"], r["name"]] for r in table.scan().to_arrow().to_pylist()) == content
    ends = [content[0], content[-1]]  # files are left out by their bounds
    of_ends = spark(f"select id, name from {t.sql} where id = {ends[0][0]} or id = {ends[1][0]}")
    assert sorted(of_ends) == (ends if len(content) > 1 else content)


def identities(t: Changes, spark: Sql) -> dict[int, tuple[int, int]]:
    """Row id and sequence number of each key, as Spark reads them."""
    found = spark(f"select id, {LINEAGE} from {t.sql}")
    assert len({row[1] for row in found}) == len(found)
    return {row[0]: (row[1], row[2]) for row in found}

"""Tables that the committer wrote, read by independent readers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from connect.gateways.catalog.catalog import CatalogGateway
from connect.records.tables.partition_spec import spec_for
from control_schemas.events import ContentFile
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.parquet_folders import SCHEMA as FOLDER_SCHEMA
from tests.support.parquet_folders import ParquetRig
from tests.support.readers import Sql
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import unique_name
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    partition_of,
    reference,
    table_commit,
    written_file,
)

pytestmark = [*SPARK_MARKS, pytest.mark.java]

COLUMNS = {
    "id": LongType(),
    "s": StringType(),
    "i": IntegerType(),
    "l": LongType(),
    "bo": BooleanType(),
    "f": FloatType(),
    "dbl": DoubleType(),
    "d": DateType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "de": DecimalType(9, 2),
    "big": DecimalType(38, 10),
    "u": UUIDType(),
    "b": BinaryType(),
    "fx": FixedType(4),
}
SCHEMA = Schema(
    *(NestedField(n, name, t, required=False) for n, (name, t) in enumerate(COLUMNS.items(), 1))
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TRANSFORMS = (  # by partition spec: each makes a table, and a column has one transform
    tuple(f"identity({c})" for c in COLUMNS if c not in {"id", "fx"}),
    tuple(f"bucket[7]({c})" for c in ("s", "i", "l", "d", "ts", "tz", "de", "big", "u", "b", "fx")),
    (
        *(f"truncate[3]({c})" for c in ("s", "i", "l", "de", "b")),
        *(f"year({c})" for c in ("d", "ts", "tz")),
    ),
    tuple(f"month({c})" for c in ("d", "ts", "tz")),
    tuple(f"day({c})" for c in ("d", "ts", "tz")),
    ("void(s)", "hour(ts)", "hour(tz)"),
)


def _row(n: int) -> dict[str, Any]:
    moment = EPOCH + dt.timedelta(days=400 * n - 1000, hours=n, microseconds=n)
    return {
        "id": n,
        "s": f"straße {n} / 100% 日本",
        "i": n * 1000 - 2500,
        "l": n * 10**12 - 2 * 10**12,
        "bo": n % 2 == 0,
        "f": n / 4 - 1,
        "dbl": -n / 8,
        "d": moment.date(),
        "ts": moment.replace(tzinfo=None),
        "tz": moment,
        "de": Decimal(n * 12345 - 30000).scaleb(-2),
        "big": Decimal(f"{'-' if n % 2 else ''}{n}234567890123456789012345678.0123456789"),
        "u": UUID(int=n * 2**100 + 7).bytes,
        "b": bytes([n, 255, 0, n]),
        "fx": bytes([n, 1, 2, 3]),
    }


def _internal(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values as transforms take them."""
    out = dict(row)
    if row["d"] is not None:
        out["d"] = (row["d"] - EPOCH.date()).days
        out["tz"] = (row["tz"] - EPOCH) // dt.timedelta(microseconds=1)
        out["ts"] = out["tz"]
        out["u"] = UUID(bytes=row["u"])
    return out


MERGE_SOON = {"commit.manifest.min-count-to-merge": "3"}
NULLS: dict[str, Any] = {**dict.fromkeys(COLUMNS), "id": 99}
ROWS = [_row(n) for n in range(4)]


def _create(
    catalog: CatalogGateway, *terms: str, properties: Mapping[str, str] | None = None
) -> Table:
    fields = []
    for n, term in enumerate(terms):
        name, _, column = term.rstrip(")").partition("(")
        transform: Transform[Any, Any] = parse_transform(name)
        source = SCHEMA.find_field(column).field_id
        # a name that Avro does not allow as it is
        fields.append(SpecField(source, 1000 + n, transform, f"{column}-{n} part"))
    return catalog.create(
        ("db", unique_name(f"r_{uuid4().hex[:8]}").replace("-", "_")),
        SCHEMA,
        PartitionSpec(*fields),
        properties,
    )


def _file(table: Table, row: Mapping[str, Any], spec_id: int | None = None) -> ContentFile:
    partition = partition_of(table, _internal(row), spec_id)
    return written_file(table, [row], partition=partition, spec_id=spec_id)


def _commit(
    committer: Committer,
    table: Table,
    files: Sequence[ContentFile],
    *,
    offset: int,
    deletes: Sequence[ContentFile] = (),
    batch: int = 0,
) -> None:
    event = announced(reference(table), files, offset=offset, deletes=deletes, batch=batch)
    outcome = committer.commit(table_commit([event]))
    assert isinstance(outcome, TableCommitted), outcome


def _committer(catalog: CatalogGateway, table: Table, **settings: str) -> Committer:
    return Committer(catalog, connector("c", [".".join(table.name())], **settings), QuickClock())


def _plain(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows by id, values in one form: readers differ in how they hand out bytes and UUIDs."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, UUID):
            return str(value)
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        return value

    return sorted([[plain(v) for v in row] for row in rows], key=lambda r: r[0])


def _expected(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    displayed = [{**r, "u": None if r["u"] is None else str(UUID(bytes=r["u"]))} for r in rows]
    return _plain([[r[c] for c in COLUMNS] for r in displayed])


def _of_pyiceberg(table: Table, **scan: Any) -> list[list[Any]]:
    rows = table.scan(**scan).to_arrow().to_pylist()
    return _plain([[r[c] for c in COLUMNS] for r in rows])


def _of_spark(spark: Sql, name: str, where: str = "true") -> list[list[Any]]:
    # TIMESTAMP comes in the session's zone, which Python would take for its own
    columns = ", ".join(f"cast(tz as timestamp_ntz) {c}" if c == "tz" else c for c in COLUMNS)
    return _plain(spark(f"select {columns} from {name} where {where}"))


def _of_duckdb(duck: Sql, table: Table, more: str = "") -> list[list[Any]]:
    scan = f"iceberg_scan('{table.metadata_location}'{more})"
    return _plain(duck(f"select {', '.join(COLUMNS)} from {scan}"))


def _spark_name(table: Table) -> str:
    return f"rest.db.`{table.name()[-1]}`"


@pytest.mark.parametrize("terms", TRANSFORMS, ids=" ".join)
def test_every_partition_transform_is_readable(
    catalog: CatalogGateway, spark: Sql, duck: Sql, terms: Sequence[str]
) -> None:
    """Rows of every partition, also of the null partition, are read; a filter finds its row."""
    table = _create(catalog, *terms, properties=MERGE_SOON)
    committer = _committer(catalog, table)
    rows = [*ROWS, NULLS]
    for offset, row in enumerate(rows):
        _commit(committer, table, [_file(table, row)], offset=offset)
    table = catalog.load(table.name())
    wanted = _expected(rows)
    assert _of_pyiceberg(table) == wanted
    assert _of_spark(spark, _spark_name(table)) == wanted
    assert _of_duckdb(duck, table) == wanted
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) <= 3
    for row in ROWS[:2]:
        found = table.scan(row_filter=EqualTo("s", row["s"])).to_arrow()
        assert found["id"].to_pylist() == [row["id"]]
    for term in terms:
        either = " or ".join(f"({_literal(term, row)})" for row in ROWS[:2])
        assert _of_spark(spark, _spark_name(table), either) == _expected(ROWS[:2]), term


def _literal(term: str, row: Mapping[str, Any]) -> str:
    column = term.rstrip(")").partition("(")[2]
    value = row[column]
    text = f"X'{value.hex()}'" if isinstance(value, bytes) else f"'{value}'"
    if column == "u":
        text = f"'{UUID(bytes=value)}'"
    kinds = {"f": "float", "dbl": "double", "d": "date", "ts": "timestamp_ntz", "bo": "boolean"}
    kinds |= {"tz": "timestamp", "de": "decimal(9,2)", "big": "decimal(38,10)"}
    kinds |= {"i": "int", "l": "bigint"}
    typed = f"cast({text} as {kinds[column]})" if column in kinds else text
    # other columns' filters keep a row apart where a boolean cannot
    return f"{column} = {typed} and id = {row['id']}"


def test_fixed_values_as_partitions_are_refused(catalog: CatalogGateway) -> None:
    """Java's encoding violates the specification; with either encoding, some readers fail."""
    table = _create(catalog, "identity(fx)")
    event = announced(reference(table), [_file(table, ROWS[0])], offset=0)
    outcome = _committer(catalog, table).commit(table_commit([event]))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "partition_type_unsupported"


def test_files_of_two_specs_are_committed_together(
    catalog: CatalogGateway, spark: Sql, duck: Sql
) -> None:
    """Files of an older spec are in manifests of that spec, before and after merging."""
    table = _create(catalog, "identity(s)", properties=MERGE_SOON)
    committer = _committer(catalog, table)
    _commit(committer, table, [_file(table, ROWS[0])], offset=0)
    with table.update_spec() as update:
        update.add_field("id", parse_transform("bucket[3]"), "id_bucket")
        update.remove_field("s-0 part")
    table = catalog.load(table.name())
    assert len(table.metadata.specs()) == 2
    for offset, row in enumerate(ROWS[1:], 1):
        _commit(
            committer,
            table,
            [_file(table, row, 0), _file(table, {**row, "id": row["id"] + 10}, 1)],
            offset=offset,
        )
    table = catalog.load(table.name())
    wanted = _expected(
        [ROWS[0], *(r for row in ROWS[1:] for r in (row, {**row, "id": row["id"] + 10}))]
    )
    assert _of_pyiceberg(table) == wanted
    assert _of_spark(spark, _spark_name(table)) == wanted
    assert _of_duckdb(duck, table) == wanted
    assert _of_spark(spark, _spark_name(table), "id = 12") == [r for r in wanted if r[0] == 12]
    specs = spark(f"select spec_id, count(*) from {_spark_name(table)}.files group by 1")
    assert sorted(specs) == [[0, 4], [1, 3]]


def test_commits_to_a_branch_are_not_in_main(
    catalog: CatalogGateway, spark: Sql, duck: Sql
) -> None:
    """What is committed to a branch is there and not in main."""
    table = _create(catalog)
    branch = {"iceberg__tables__default_commit_branch": "audit"}
    _commit(_committer(catalog, table), table, [_file(table, ROWS[0])], offset=0)
    other = Committer(catalog, connector("d", [".".join(table.name())], **branch), QuickClock())
    _commit(other, table, [_file(table, ROWS[1])], offset=0)
    table = catalog.load(table.name())
    head = table.snapshot_by_name("audit")
    assert head is not None
    main, audit = _expected(ROWS[:1]), _expected(ROWS[:2])
    name = _spark_name(table)
    assert _of_spark(spark, name) == _of_pyiceberg(table) == _of_duckdb(duck, table) == main
    assert _of_spark(spark, f"{name} version as of 'audit'") == audit
    assert _of_pyiceberg(table, snapshot_id=head.snapshot_id) == audit
    assert _of_duckdb(duck, table, f", snapshot_from_id={head.snapshot_id}::ubigint") == audit


@pytest.mark.matrix
def test_row_level_commits_and_maintenance_by_spark_work_together(
    catalog: CatalogGateway, spark: Sql, duck: Sql
) -> None:
    """A key written three times in one round is one row; commits continue after rewrites."""
    table = _create(catalog, properties={**MERGE_SOON, "write.delete.mode": "merge-on-read"})
    committer = _committer(catalog, table)
    versions = [{**ROWS[0], "i": n} for n in range(6)]
    offset = 0
    for start in (0, 3):
        events = []
        for batch in (1, 2, 3):
            deletes = [equality_delete(table, 0)]
            files = [
                _file(table, versions[start + batch - 1]),
                _file(table, {**ROWS[1], "id": offset + 50}),
            ]
            events.append(
                announced(reference(table), files, deletes=deletes, offset=offset, batch=batch)
            )
            offset += 1
        outcome = committer.commit(table_commit(events))
        assert isinstance(outcome, TableCommitted), outcome
    table = catalog.load(table.name())
    wanted = _expected([versions[5], *({**ROWS[1], "id": n + 50} for n in range(6))])
    name = _spark_name(table)
    assert _of_spark(spark, name) == wanted
    assert _of_duckdb(duck, table) == wanted
    short = name.removeprefix("rest.").replace("`", "")
    rewrite = "options => map('rewrite-all', 'true')"
    spark(f"call rest.system.rewrite_data_files(table => '{short}', {rewrite})")
    spark(f"call rest.system.rewrite_manifests('{short}')")
    _commit(committer, table, [_file(table, ROWS[2])], offset=offset)
    expire = "older_than => now(), retain_last => 1"
    spark(f"call rest.system.expire_snapshots(table => '{short}', {expire})")
    _commit(committer, table, [_file(table, ROWS[3])], offset=offset + 1)
    successor = _committer(catalog, table)
    _commit(successor, table, [_file(table, NULLS)], offset=offset + 2)
    table = catalog.load(table.name())
    wanted = _plain([*wanted, *_expected([*ROWS[2:], NULLS])])
    assert _of_spark(spark, name) == wanted
    assert _of_duckdb(duck, table) == wanted


def test_spark_reads_a_parquet_folder(spark_session: Any, tmp_path: Path) -> None:
    """With types of its partitions, new columns, and pruning; without files that are staged."""
    spec = spec_for(("dt",), FOLDER_SCHEMA)
    rig = ParquetRig(str(tmp_path / "lake"), spec=spec)
    days = [dt.date(2026, 11, 24), dt.date(2026, 11, 25), None]
    rows = [{"id": n, "name": f"n{n}", "dt": days[n % 3]} for n in range(9)]
    outcome = rig.committer().commit(table_commit([rig.announcement(rows, 1)]))
    assert isinstance(outcome, TableCommitted)
    rig.announcement([{"id": 100, "dt": days[0]}], 2)
    read = spark_session.spark.read.parquet(str(rig.folder))
    assert dict(read.dtypes) == {"id": "bigint", "name": "string", "dt": "date"}
    found = sorted((row.id, row.name, row.dt) for row in read.collect())
    assert found == [(row["id"], row["name"], row["dt"]) for row in rows]
    assert read.where("dt = date '2026-11-25'").count() == 3

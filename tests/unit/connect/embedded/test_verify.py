"""The demo's check finds what it is there to find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from connect.embedded.payments import KINDS, kind_codes
from connect.embedded.verify import Verdict, committed_records, verify
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog

TABLES = {kind: f"bank.{kind}s" for kind in KINDS}
RECORDS = (120, 80)
Row = tuple[int, int]


def rows_of(kind: str) -> list[Row]:
    """Partition and sequence of every record of a kind."""
    return [
        (partition, int(sequence))
        for partition, count in enumerate(RECORDS)
        for sequence, code in enumerate(kind_codes(partition, np.arange(count, dtype=np.int64)))
        if KINDS[code] == kind
    ]


def verified(catalog: CatalogGateway, rows: dict[str, list[Row]]) -> Verdict:
    """Write rows into the tables and check them."""
    schema = pa.schema([("partition", pa.int64()), ("sequence", pa.int64())])
    for kind, name in TABLES.items():
        client = catalog._client()
        client.create_namespace_if_not_exists("bank")
        table = client.create_table(name, schema)
        pairs = rows[kind]
        columns = [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
        table.append(pa.table(columns, schema=schema))
    return verify(catalog, TABLES, RECORDS)


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> CatalogGateway:
    """A fresh catalog."""
    return open_catalog("test", sql_catalog_properties)


@pytest.fixture
def rows() -> dict[str, list[Row]]:
    """What the tables must hold."""
    return {kind: rows_of(kind) for kind in KINDS}


def test_complete_tables_have_no_finding(
    catalog: CatalogGateway, rows: dict[str, list[Row]]
) -> None:
    """Every record is once in its table."""
    verdict = verified(catalog, rows)
    assert verdict.is_good
    assert [t.rows for t in verdict.tables] == [t.rows_expected for t in verdict.tables]
    assert committed_records(catalog, list(TABLES.values())) == sum(RECORDS)


def test_a_lost_record_is_missing(catalog: CatalogGateway, rows: dict[str, list[Row]]) -> None:
    """One row less is one missing."""
    rows["payment"].pop()
    verdict = verified(catalog, rows)
    assert (verdict.missing, verdict.twice, verdict.is_good) == (1, 0, False)


def test_a_repeated_record_is_twice(catalog: CatalogGateway, rows: dict[str, list[Row]]) -> None:
    """A row three times counts as two."""
    rows["payment"] += [rows["payment"][0]] * 2
    verdict = verified(catalog, rows)
    assert (verdict.missing, verdict.twice, verdict.is_good) == (0, 2, False)


def test_a_record_in_the_wrong_table_is_misrouted(
    catalog: CatalogGateway, rows: dict[str, list[Row]]
) -> None:
    """Nothing missing, nothing twice, and still wrong."""
    rows["payment"].append(rows["refund"].pop())
    verdict = verified(catalog, rows)
    assert (verdict.missing, verdict.twice, verdict.misrouted) == (0, 0, 1)
    assert not verdict.is_good


@pytest.mark.parametrize("row", [(0, 120), (2, 0), (-1, 0), (1, -1)])
def test_a_record_that_was_never_produced_is_unknown(
    catalog: CatalogGateway, rows: dict[str, list[Row]], row: Row
) -> None:
    """Numbers beyond what was produced are found too."""
    rows["payment"].append(row)
    verdict = verified(catalog, rows)
    assert (verdict.unknown, verdict.missing, verdict.is_good) == (1, 0, False)


def test_all_records_of_a_missing_table_are_missing(catalog: CatalogGateway) -> None:
    """A missing table is no error."""
    catalog.exists(("bank", "none"))
    verdict = verify(catalog, TABLES, RECORDS)
    assert verdict.missing == sum(RECORDS)
    assert committed_records(catalog, list(TABLES.values())) == 0

"""Appended rows without key in tables whose rows are replaced by key, in each write mode.

``tests/differential/test_keyless_changes.py`` applies equality deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from connect.gateways.catalog.catalog import open_catalog
from tests.support.tables import announced, reference, table_commit
from tests.support.upserts import (
    DeltaUpserts,
    Row,
    Upserts,
    VectorUpserts,
    committed,
    counted,
    delete_file,
    row,
)

Step = tuple[Sequence[Row], Sequence[Row]]


def commit_steps(t: Upserts, commit: Callable[[Any], Any], *steps: Step) -> None:
    """Commit steps of rows to append, and rows to upsert, in one round; apply them to the model."""
    table, envelopes = t.reloaded(), []
    for appended, upserted in steps:
        gone = set(map(t.key, upserted))
        rows = [*appended, *upserted]
        t.rows = [each for each in t.rows if t.key(each) not in gone] + rows
        deletes = [delete_file(table, upserted, t.keys)] if upserted else []
        files = t.data_files(rows)
        step = announced(reference(table), files, deletes, offset=t.offset, batch=t.offset)
        envelopes.append(step)
        t.offset += 1
    committed(commit(table_commit(envelopes)))


@pytest.mark.parametrize("mode", ["copy-on-write", "vectors", "delta"])
def test_equal_rows_stay_until_a_change_with_their_key(
    sql_catalog_properties: dict[str, str], tmp_path: Path, mode: str
) -> None:
    """All rows of the key are replaced, also those of an earlier step of the round."""
    t: Upserts
    if mode == "delta":
        t = DeltaUpserts(str(tmp_path / "lake"))
        commit = t.log_committer().commit
    else:
        kind = VectorUpserts if mode == "vectors" else Upserts
        t = kind(open_catalog("iceberg", sql_catalog_properties))
        commit = t.committer().commit
    names = ["id", "region", "value"]
    equal = [row(1, 1), row(1, 1), row(2, 2), row(1, 3), row(None, 4)]
    commit_steps(t, commit, (equal, []))
    commit_steps(t, commit, ([row(1, 5), row(2, 2)], []), ([row(1, 6)], [row(1, 7)]))
    found = t.now().to_pyarrow_table() if isinstance(t, DeltaUpserts) else None
    rows = (t.reloaded().scan().to_arrow() if found is None else found).to_pylist()
    assert counted(rows, names) == counted(t.rows, names)
    assert len(t.rows) == 5
    t.catalog.close()

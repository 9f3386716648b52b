"""Rows in pieces, of which Spark receives some columns only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as all of Spark's users call it

from connect.errors import InvariantViolation
from worker.sql.row_transport import (
    CARRIED,
    DROPPED,
    FAILED,
    FENCE,
    FENCE_ROWS,
    MADE,
    PLACE,
    REFUSED,
    ROW,
    STATE,
    ColumnSplit,
    Item,
    fence_text,
    from_pieces,
    has_list,
    to_pieces,
)

ITEMS = (Item("n", ("n",), pa.int64()), Item("made"))
SPLIT = ColumnSplit(("n",), ITEMS)
FENCED = ColumnSplit(("n",), ITEMS, is_fenced=True)


def rows(count: int, *, others: tuple[int, ...] = ()) -> pa.RecordBatch:
    """Rows with their number; ``others`` are refused records."""
    states = [REFUSED if i in others else ROW for i in range(count)]
    found = [
        {"seq": i, "state": state, "value": b"%d" % i, "0": i if state == ROW else None}
        for i, state in enumerate(states)
    ]
    return pa.RecordBatch.from_pylist(found, SPLIT.carried)


def asked(
    given: pa.RecordBatch, split: ColumnSplit = SPLIT, *, copies: int = 1, batch_rows: int = 100
) -> Iterator[pa.RecordBatch]:
    """The result of a query that doubles ``n``, drops multiples of 5 and fails for those of 7."""
    sent: list[dict[str, Any]] = []
    for batch in to_pieces(given, [given.column("0")], split):
        for row in batch.to_pylist():
            n, state = row["n"], ROW
            if n is None or n % 5 == 0:
                state = DROPPED
            made = {"made": 2 * n} if n is not None and state == ROW and n % 7 else None
            one = {PLACE: row[PLACE], CARRIED: row[CARRIED], STATE: state, MADE: made}
            sent += [one] * (copies if n is not None else 1)
    schema = pa.schema(
        [
            pa.field(PLACE, pa.int32()),
            pa.field(CARRIED, pa.binary()),
            pa.field(STATE, pa.int8()),
            pa.field(MADE, pa.struct([("made", pa.int64())])),
        ]
    )
    for start in range(0, len(sent), batch_rows):
        yield pa.RecordBatch.from_pylist(sent[start : start + batch_rows], schema)


@pytest.mark.parametrize("split", [SPLIT, FENCED])
@pytest.mark.parametrize("batch_rows", [1, 7, 10_000])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("others", [(), (0, 3, 4, 199), tuple(range(200))])
def test_every_row_returns_at_its_position(
    split: ColumnSplit, batch_rows: int, copies: int, others: tuple[int, ...]
) -> None:
    """For any batches, with rows that Spark does not receive and rows that it multiplies."""
    given = rows(200, others=others)
    came = asked(given, split, copies=copies, batch_rows=batch_rows)
    found = pa.Table.from_batches(list(from_pieces(came, split))).to_pylist()
    expected = []
    for i in range(200):
        state, made = REFUSED, None
        if i not in others:
            state = DROPPED if i % 5 == 0 else ROW if i % 7 else FAILED
            made = 2 * i if state == ROW else None
        expected += [(i, state, b"%d" % i, made)] * (1 if i in others else copies)
    assert [(r["seq"], r["state"], r["value"], r["1"]) for r in found] == expected


def test_pieces_are_bounded() -> None:
    """In rows and in bytes."""
    given = rows(20_000)
    assert len(list(to_pieces(given, [given.column("0")], SPLIT))) == 2 * 3
    columns = dict(zip(given.schema.names, given.columns, strict=True))
    columns["value"] = pa.array([bytes(1_000)] * 20_000, pa.binary())
    large = pa.record_batch(columns, schema=given.schema)
    carriers = [b for b in to_pieces(large, [given.column("0")], SPLIT) if b.num_rows == 1]
    assert len(carriers) == large.nbytes // 2**20
    back = list(from_pieces(asked(large, batch_rows=10_000), SPLIT))
    assert sum(batch.num_rows for batch in back) == 20_000


def test_fences_limit_runs_of_null_lists() -> None:
    """There are fewer than ``FENCE_ROWS`` rows between two fences; a piece starts with one."""
    given = rows(1_000, others=(17, 18))
    _, sent = to_pieces(given, [given.column("0")], FENCED)
    fences = np.flatnonzero(sent.column(PLACE).to_numpy() == FENCE)
    assert fences[0] == 0
    assert np.diff([*fences, sent.num_rows]).max() <= FENCE_ROWS
    assert sent.num_rows - len(fences) == 998


@pytest.mark.parametrize("lost", [0, 1, 57, 199])
def test_a_missing_row_stops_the_task(lost: int) -> None:
    """It does not count as dropped."""
    came = [batch for batch in asked(rows(200), batch_rows=1) if batch[PLACE][0].as_py() != lost]
    with pytest.raises(InvariantViolation, match="lost rows"):
        list(from_pieces(iter(came), SPLIT))


def test_rows_out_of_order_stop_the_task() -> None:
    """Also rows before their carrier."""
    carrier, *came = asked(rows(200), batch_rows=1)
    with pytest.raises(InvariantViolation, match="order"):
        list(from_pieces(iter([carrier, *reversed(came)]), SPLIT))
    with pytest.raises(InvariantViolation, match="have no carrier"):
        list(from_pieces(iter([came[0], carrier, *came[1:]]), SPLIT))


def test_fences_have_an_item_in_every_list() -> None:
    """At any depth, and in maps."""
    inner = T.StructType([T.StructField("x", T.ArrayType(T.LongType()))])
    kind = T.MapType(T.DateType(), T.ArrayType(inner))
    assert has_list(kind)
    assert has_list(inner)
    assert not has_list(T.StructType([T.StructField("x", T.StringType())]))
    assert fence_text(kind) == "map(DATE'1970-01-01', array(named_struct('f0', array(0))))"

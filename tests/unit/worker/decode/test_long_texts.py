"""Checks of long documents: the same result as a search through each, without one."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counted_calls import counted_calls
from worker.decode.byte_prefilters import counts_by_row, openings
from worker.decode.json_decoder import JsonDecoder
from worker.decode.scanned_json import json_decoder

FIELDS = {"id": pa.int64(), "a": pa.string()}


@given(st.lists(st.text("{}[]a;\x1b\x5b\x7b", max_size=9), max_size=9))
def test_openings_are_counted_by_row(texts: list[str]) -> None:
    """Of braces and brackets, and of no other character."""
    raw = np.frombuffer("".join(texts).encode(), np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    expected = [text.count("{") + text.count("[") for text in texts]
    assert counts_by_row(openings(raw), ends).tolist() == expected


@pytest.mark.parametrize("offset", [0, 3])
def test_deep_documents_are_refused_where_they_are(offset: int) -> None:
    """Java's parser refuses them; a long text before or behind changes nothing."""
    deep = '{"a":' + "[" * 950 + "]" * 950 + "}"
    plain = json.dumps({"id": 1, "a": "x" * 3_000})
    documents = pa.array([plain, deep, plain, "{}", deep, plain, plain], pa.binary())
    decoded = JsonDecoder(FIELDS, report_unexpected=False).decode(documents.slice(offset))
    assert [row + offset for row in decoded.refused.tolist()] == [r for r in (1, 4) if r >= offset]


def test_documents_that_all_hold_a_backslash_are_not_scanned() -> None:
    """A sample shows it: no byte of the others is searched for backslashes."""
    documents = [json.dumps({"id": n, "a": "line\n" * 500}) for n in range(200)]
    with counted_calls() as calls:
        (block,) = json_decoder(FIELDS, report_unexpected=False).decode(
            pa.array(documents, pa.binary())
        )
    assert block.table.num_rows == len(documents)
    assert calls["escapes"] == calls["LearnedScanner._run"] == 0

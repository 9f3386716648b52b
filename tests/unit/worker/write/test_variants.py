"""Variants in Parquet files: their encoding, read by PySpark, and their mark in the footer."""

from __future__ import annotations

import decimal
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyspark.sql.variant_utils import VariantUtils

from connect.gateways.storage.variant_footer import marked
from connect.model.table_types import VariantType, arrow_schema
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.variant import to_variant
from tests.differential.support import config, plan, run_batches, source

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner)
    ),
    max_leaves=20,
)


def read(value: Any) -> Any:
    """What PySpark reads from a variant."""
    with decimal.localcontext(prec=40):  # it computes with decimals
        return VariantUtils.to_python(value["value"], value["metadata"])


@settings(max_examples=150, deadline=None)
@given(document=DOCUMENTS)
def test_documents_are_read_back_by_pyspark(document: Any) -> None:
    """Values of every kind, at any depth."""
    assert read(to_variant(document)) == document


@pytest.mark.parametrize("count", [255, 256, 70_000])
def test_sizes_need_more_bytes(count: int) -> None:
    """Many elements, many fields, long texts: sizes and offsets of one to four bytes."""
    for document in (
        list(range(count)),
        {f"f{n:05d}": n for n in range(count)},
        ["x" * count, "y"],
        {"a" * count: 1},
    ):
        assert read(to_variant(document)) == document


def test_numbers_take_the_bytes_that_they_need() -> None:
    """One to eight bytes, then decimals of up to 38 digits."""
    sizes = [len(to_variant(n)["value"]) for n in (127, -128, 128, 2**31 - 1, 2**31, 2**63 - 1)]
    assert sizes == [2, 2, 3, 5, 9, 9]
    for number in (Decimal("1.50"), Decimal("-0.001"), Decimal("1E+3"), Decimal(10**37)):
        assert read(to_variant(number)) == number
    for number in (10**38, Decimal("1e-40")):
        with pytest.raises(Unconvertible, match="38 digits"):
            to_variant(number)


def test_values_that_are_no_variant_are_refused() -> None:
    """Keys that are no texts, values too deep, halves of characters."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value, reason in (({1: 2}, "wrong_type"), (deep, "too_deep"), ("\ud800", "bad_text")):
        with pytest.raises(Unconvertible) as refused:
            to_variant(value)
        assert refused.value.reason == reason


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(
        3,
        "s",
        StructType(
            NestedField(4, "inner x", VariantType(), required=False),
            NestedField(5, "t", StringType(), required=False),
        ),
        required=False,
    ),
    NestedField(6, "last", StringType(), required=False),
)


def test_files_with_variants_have_the_logical_type_and_no_bounds(tmp_path: Path) -> None:
    """Also within structs; a null column is no variant, a null inside is one."""
    documents = [{"a": [1, None, {"b": "x"}]}, None, 7, "text"]
    lines = [
        json.dumps({"id": n, "v": v, "s": {"inner x": [v], "t": "t"}, "last": "z"}).encode()
        for n, v in enumerate(documents)
    ]
    planned = plan(tmp_path, SCHEMA)
    result = run_batches(config(), [planned], [source(lines)])
    assert result.error is None
    [file] = result.files["db.t1"]
    path = file.file_path.removeprefix("file://")
    stored = pq.ParquetFile(path)
    assert str(stored.schema).count("(Variant(1))") == 2
    assert file.file_size_in_bytes == Path(path).stat().st_size
    assert set(file.value_counts or {}) == {1, 5, 6}
    assert not {2, 3, 4} & set(file.lower_bounds or {})
    rows = sorted(stored.read().to_pylist(), key=lambda row: row["id"])
    assert [None if r["v"] is None else read(r["v"]) for r in rows] == documents
    assert [read(r["s"]["inner_x20x"]) for r in rows] == [[v] for v in documents]


def test_a_footer_without_the_variant_is_an_error() -> None:
    """Never a file whose variants readers take for structs."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert marked(footer, []) == footer
    with pytest.raises(ValueError, match="lacks"):
        marked(footer, [("v",)])


def test_schemas_with_variants_are_parsed_and_written() -> None:
    """In columns and structs; in lists and maps the type is not known."""
    text = SCHEMA.model_dump_json()
    assert Schema.model_validate_json(text) == SCHEMA
    assert '"variant"' in text
    assert arrow_schema(SCHEMA).field("v").metadata == {b"PARQUET:field_id": b"2"}
    with pytest.raises(ValueError, match="variant"):
        Schema.model_validate_json(
            text.replace(
                '"variant"',
                '{"type":"list","element-id":9,"element":"variant","element-required":false}',
                1,
            )
        )

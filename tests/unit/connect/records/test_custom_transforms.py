"""Transformations of users: the documented example, and what goes wrong with others."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestamptzType

from connect.config.connector import TransformConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import SinkRecord
from connect.records.transforms.column_function import ColumnFunction
from connect.records.transforms.custom_transforms import GROUP, declaration, installed
from connect.records.transforms.transform import Apply, typed_options
from tests.differential.support import config, plan, rows_of, run_batches, source
from tests.support.entry_points import install

INSTANT = pa.timestamp("us", "UTC")
PAGE = Path(__file__).parents[4] / "docs/reference/transforms/custom.md"


def made(value: str, **options: str) -> Apply:
    """The function of an entry point with this value."""
    declared = declaration(EntryPoint("Own", value, GROUP))
    return declared.make(typed_options((), options, families=declared.families), "value")


def own(monkeypatch: pytest.MonkeyPatch, **members: Any) -> None:
    """A module ``own_transforms`` with these members."""
    module = types.ModuleType("own_transforms")
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, "own_transforms", module)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Remove the modules that a test installs."""
    yield
    installed.cache_clear()


def installed_as(monkeypatch: pytest.MonkeyPatch, folder: Path, line: str) -> None:
    """Install a distribution with an entry point of the group."""
    install(monkeypatch, folder, GROUP, line)
    installed.cache_clear()


def record(value: Any) -> SinkRecord:
    return SinkRecord("t", 0, 1, None, value=value)


def test_the_documented_example_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of the page has the documented result."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    members: dict[str, Any] = {}
    exec(code[1], members)
    own(monkeypatch, hashed=members["hashed"])
    apply = made("own_transforms:hashed", field="card")
    digest = hashlib.sha256(b"4111").hexdigest()
    assert apply(record({"card": 4111})) == record({"card": digest})
    assert apply(record(None)) == record(None)
    with pytest.raises(ConfigError, match="field"):
        made("own_transforms:hashed")


def test_an_exception_refuses_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its class, not its message; invalid results are errors."""
    own(
        monkeypatch,
        raising=lambda _: lambda _: {}["secret"],
        odd=lambda _: lambda _: "secret",
        many=lambda _: lambda r: [r, r],
        none=lambda _: None,
        pattern=lambda _: re.compile("("),
        no_file=lambda _: Path("missing.avsc").read_text(),
    )
    for name, message in (("raising", "KeyError"), ("odd", "str")):
        with pytest.raises(RecordError, match=message) as refused:
            made(f"own_transforms:{name}")(record(1))
        assert "secret" not in str(refused.value)
    assert made("own_transforms:many")(record(1)) == [record(1), record(1)]
    for value in ("none", "missing", "pattern", "no_file"):
        with pytest.raises(ConfigError, match="Own"):
            made(f"own_transforms:{value}")
    with pytest.raises(ConfigError, match="Own"):
        made("no_such_module:x")


def documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """All functions on the page as ``own_transforms``."""
    members: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(code, members)
    own(monkeypatch, **{n: m for n, m in members.items() if not n.startswith("__")})


def test_the_documented_example_of_columns_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """With single records too; other types are refused."""
    documented(monkeypatch)
    apply = made("own_transforms:last_digits", field="card")
    assert apply(record({"card": "411122223333", "n": 1})) == record({"card": "3333", "n": 1})
    assert apply(record({"n": 1})) == record({"n": 1, "card": None})
    assert apply(record(None)) == record(None)
    with pytest.raises(RecordError, match="does not have the type") as refused:
        apply(record({"card": 4111}))
    assert "4111" not in str(refused.value)
    with pytest.raises(ConfigError, match="rejects its options"):
        made("own_transforms:last_digits", field="card", count="x")


def test_results_of_another_type_or_length_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has no values."""
    text, number = {"a": pa.string()}, {"b": pa.int64()}
    own(
        monkeypatch,
        rows=lambda _: ColumnFunction(text, number, lambda _: pa.table({"b": [1, 2]})),
        kind=lambda _: ColumnFunction(text, number, lambda _: pa.table({"b": ["secret"]})),
        name=lambda _: ColumnFunction(text, number, lambda t: t),
        value=lambda _: ColumnFunction(text, number, lambda t: t["a"].to_pylist()[0]),
        none=lambda _: ColumnFunction({}, {}, lambda t: t),
        wide=lambda _: ColumnFunction(text, {"b": pa.list_(pa.int8())}, lambda t: t),
    )
    for name, message in (
        ("rows", "rows for"),
        ("kind", "return b as int64"),
        ("name", "return b as int64"),
        ("value", "not a table"),
    ):
        with pytest.raises(RecordError, match=message) as refused:
            made(f"own_transforms:{name}")(record({"a": "secret"}))
        assert "secret" not in str(refused.value)
    for name in ("none", "wide"):
        with pytest.raises(ConfigError, match="transformation Own"):
            made(f"own_transforms:{name}")


def test_columns_and_single_records_have_the_same_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bad row does not affect other rows."""

    def strict(_: Any) -> ColumnFunction:
        def apply(table: pa.Table) -> pa.RecordBatch:
            calls.append(table.num_rows)
            number = table["name"].cast(pa.int64())
            rows = pa.table({"twice": pc.multiply(number, 2), "at": number.cast(INSTANT)})
            return rows.combine_chunks().to_batches()[0]

        return ColumnFunction({"name": pa.string()}, {"twice": pa.int64(), "at": INSTANT}, apply)

    calls: list[int] = []
    own(monkeypatch, strict=strict)
    installed_as(monkeypatch, tmp_path, "Own = own_transforms:strict")
    names: list[Any] = [str(n) for n in range(100)]
    names[17], names[50], names[80], names[81] = "x", None, 5, True
    lines = [json.dumps({"id": n, "name": name}).encode() for n, name in enumerate(names)]
    tolerant = config(**{"errors.tolerance": "all"})
    connector = dataclasses.replace(tolerant, transforms=(TransformConfig("o", "Own"),))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "twice", LongType(), required=False),
        NestedField(3, "at", TimestamptzType(), required=False),
    )
    results = []
    for only in (False, True):
        calls.clear()
        found = run_batches(
            connector, [plan(tmp_path, schema)], [source(lines)], reference_only=only
        )
        rows = sorted(rows_of(found, "db.t1"), key=lambda row: row["id"])
        results.append((rows, [letter.record.offset for letter in found.dead_letters]))
        assert (max(calls) > 1) is not only
    assert results[0] == results[1]
    assert results[0][1] == [17, 80, 81]
    assert results[0][0][3] == {"id": 3, "twice": 6, "at": 3}

"""The column path gives what the reference gives: same rows, same refusals, same requests."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from connect.model.layout import TopicPartition
from tests.differential.both_paths import ALL, both, reported
from tests.differential.cases import PLAIN, RECORDS, TYPES, VALUES
from tests.differential.examples import generated, part
from tests.differential.support import config, plan, rows_of, run_batches, source
from worker.batch.descriptors import BatchResult, PartitionProgress
from worker.convert import scalars, texts
from worker.decode import json_decoder
from worker.pipeline.pipeline import PipelineLimits


def schema_of(kind: str, *, required: bool = False) -> Schema:
    return Schema(
        NestedField(1, "c", TYPES[kind], required=required),
        NestedField(2, "n", TYPES["long"], required=False),
    )


def differences(kind: str, values: Sequence[str], folder: Path) -> list[Any]:
    """Values that the paths disagree on, tried together and, if they differ, one by one."""
    connector = config(**ALL)
    plans = [plan(folder, schema_of(kind))]
    lines = [f'{{"c":{value},"n":{i}}}'.encode() for i, value in enumerate(values)]
    padding = [f'{{"c":{PLAIN[kind]},"n":-{i}}}'.encode() for i in range(1, 3)]
    mixed = [line for value in lines for line in (*padding, value)]
    by_column, by_record = both(connector, plans, [source(mixed)])
    if by_column == by_record:
        return []
    found = []
    for value, line in zip(values, lines, strict=True):
        one, other = both(connector, plans, [source([*padding, line])])
        if one != other:
            found.append((value[:60], one, other))
    return found or [("only together", by_column, by_record)]


@pytest.mark.parametrize("kind", TYPES)
def test_every_value_is_equal_on_both_paths_in_every_column(kind: str, tmp_path: Path) -> None:
    """Each unusual value among plain ones."""
    assert not differences(kind, VALUES, tmp_path)


REPEATED = 3
Outcome = tuple[list[str], list[tuple[Any, ...]]]


def outcomes(result: BatchResult, count: int) -> list[Outcome]:
    """Rows and refusals of each value, which ``REPEATED`` records in a row have."""
    assert result.is_usable
    parts: list[Outcome] = [([], []) for _ in range(count)]
    for row in rows_of(result, "db.t1"):
        parts[row["n"] // REPEATED][0].append(repr(row))
    for letter in result.dead_letters:
        refusals = parts[letter.record.offset // REPEATED][1]
        refusals.append((letter.record, *reported(letter.error)))
    return parts


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_with_one_repeated_value_is_equal_on_both_paths(kind: str, tmp_path: Path) -> None:
    """The learned form does not change the result.

    By column each value has a batch of its own. The record path learns nothing: it takes all.
    Neighbouring types take different values, six of them together all values.
    """
    connector, plans = config(**ALL), [plan(tmp_path, schema_of(kind))]
    values = part(VALUES, list(TYPES).index(kind), of=6)
    groups = []
    for i, value in enumerate(values):
        numbers = range(REPEATED * i, REPEATED * (i + 1))
        lines = [f'{{"c":{value},"n":{n}}}'.encode() for n in numbers]
        groups.append(source(lines, start=REPEATED * i))
    by_record = run_batches(connector, plans, groups, reference_only=True)
    wanted, progress, losses = outcomes(by_record, len(values)), PartitionProgress(), 0
    for i, group in enumerate(groups):
        by_column = run_batches(connector, plans, [group])
        nothing: Outcome = ([], [])
        expected = [wanted[i] if n == i else nothing for n in range(len(values))]
        assert outcomes(by_column, len(values)) == expected, values[i][:60]
        (counted,) = by_column.progress.values()
        progress, losses = progress.plus(counted), losses + by_column.losses
    assert by_record.progress == {TopicPartition("t", 0): progress}
    assert by_record.losses == losses


@pytest.mark.parametrize("kind", ["long", "string", "struct"])
@pytest.mark.parametrize("extra", [{}, {"iceberg.tables.evolve-schema-enabled": "true"}])
def test_every_record_is_equal_on_both_paths(
    kind: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """Alone and among others."""
    connector, plans = config(**ALL, **extra), [plan(tmp_path, schema_of(kind))]
    for record in RECORDS:
        by_column, by_record = both(connector, plans, [source([record])])
        assert by_column == by_record, record
    by_column, by_record = both(connector, plans, [source(RECORDS * 3)])
    assert by_column == by_record


def test_documents_of_neighbouring_records_are_not_joined(tmp_path: Path) -> None:
    """Records that would make up each other's documents are not taken for them."""
    connector, plans = config(**ALL), [plan(tmp_path, schema_of("long"))]
    pieces = [b'{"c":1}{"c":2}', b'{"c":3}\x00{"c":4}', b'{"c":"}', b'{","n":1}', b"{}", b"{}{}"]
    for some in itertools.permutations(pieces, 3):
        by_column, by_record = both(connector, plans, [source(some)])
        assert by_column == by_record, some


@pytest.mark.parametrize("kind", TYPES)
def test_null_in_a_required_column_is_refused_on_both_paths(kind: str, tmp_path: Path) -> None:
    """Or a missing value; the error names the column."""
    connector, plans = config(**ALL), [plan(tmp_path, schema_of(kind, required=True))]
    lines = [b"{}", b'{"c":null}', f'{{"c":{PLAIN[kind]}}}'.encode(), b'{"n":1}']
    by_column, by_record = both(connector, plans, [source(lines)])
    assert by_column == by_record
    assert len(by_column["letters"]) == 3


# ------------------------------------------------------------------ generated

FIELD_NAMES = st.sampled_from(["a", "b", "c", "A", "p.q", "é", "x y"])


@st.composite
def schemas(draw: st.DrawFn) -> tuple[Schema, dict[str, str]]:
    """A schema of a few columns, and which kind each is."""
    names = draw(st.lists(FIELD_NAMES, min_size=1, max_size=4, unique=True))
    kinds = {name: draw(st.sampled_from(sorted(TYPES))) for name in names}
    fields = [
        NestedField(100 * i + 1, name, fresh(TYPES[kind], 100 * i), required=draw(st.booleans()))
        for i, (name, kind) in enumerate(kinds.items())
    ]
    return Schema(*fields), kinds


def fresh(kind: Any, base: int) -> Any:
    """The type with ids of its own."""
    text = kind.model_dump_json() if not kind.is_primitive else None
    if text is None:
        return kind

    def shift(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                k: v + base + 2 if k in ("id", "element-id", "key-id", "value-id") else shift(v)
                for k, v in node.items()
            }
        return [shift(item) for item in node] if isinstance(node, list) else node

    return type(kind).model_validate(shift(json.loads(text)))


@st.composite
def records(draw: st.DrawFn, kinds: dict[str, str]) -> bytes | None:
    """A record for such a schema: mostly right, sometimes odd, with fields of no column."""
    if draw(st.integers(0, 40)) == 0:
        return draw(st.sampled_from(RECORDS))
    members = []
    for name, kind in kinds.items():
        choice = draw(st.integers(0, 30))
        if choice == 0:
            members.append((name, draw(st.sampled_from(VALUES))))
        elif choice == 1:
            members.append((name, "null"))
        elif choice != 2:
            members.append((name, PLAIN[kind]))
    if draw(st.integers(0, 5)) == 0:
        members.append((draw(FIELD_NAMES), draw(st.sampled_from(VALUES[:60]))))
    space = draw(st.sampled_from(["", "", "", " ", "\n"]))
    body = ",".join(f'{space}"{name}":{value}' for name, value in members)
    return f"{{{body}{space}}}".encode()


@st.composite
def batches(draw: st.DrawFn) -> tuple[Schema, list[bytes | None]]:
    """A schema and records for it."""
    schema, kinds = draw(schemas())
    return schema, draw(st.lists(records(kinds), min_size=1, max_size=30))


@generated(75)
@given(batches(), st.sampled_from(["all", "none"]), st.booleans(), st.integers(1, 40))
def test_generated_batches_are_equal_on_both_paths(
    tmp_path_factory: pytest.TempPathFactory,
    batch: tuple[Schema, list[bytes | None]],
    tolerance: str,
    evolve: bool,
    block_rows: int,
) -> None:
    """The same rows, refusals and requests."""
    schema, lines = batch
    connector = config(
        **{
            "errors.tolerance": tolerance,
            "iceberg.tables.evolve-schema-enabled": str(evolve).lower(),
        }
    )
    plans = [plan(tmp_path_factory.mktemp("t"), schema)]
    limits = PipelineLimits(block_rows=block_rows)
    by_column, by_record = both(connector, plans, [source(lines)], limits)
    assert by_column == by_record


# ------------------------------------------------------------------ does it find bugs?


def _no_doubt(values: Any) -> Any:
    return values != values  # noqa: PLR0124 - only NaN


def _any_shape(column: Any, _shape: Any, kind: Any) -> Any:
    return column.cast(kind), None


_PLANTED = {
    "large and negative zero": ("double", scalars, "ambiguous_doubles", _no_doubt),
    "any shape of timestamp": ("timestamptz", texts, "_cast", _any_shape),
    "tiny numbers are zero": ("double", json_decoder, "ambiguous_zeros", lambda *_: None),
    "doubt forgotten": ("wide decimal", scalars, "some", lambda _: None),
    "overflow forgotten": ("int", scalars, "some", lambda _: None),
}


@pytest.mark.parametrize("bug", _PLANTED)
def test_planted_bugs_are_found(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check that is removed from the column path is detected by these values."""
    kind, module, name, planted = _PLANTED[bug]
    connector, plans = config(**ALL), [plan(tmp_path, schema_of(kind))]
    monkeypatch.setattr(module, name, planted)
    for value in VALUES:
        lines = [f'{{"c":{value},"n":1}}'.encode()]
        try:
            by_column, by_record = both(connector, plans, [source(lines)])
        except (pa.ArrowInvalid, OverflowError):
            return  # the bug was loud
        if by_column != by_record:
            return
    pytest.fail("no path differs")


ROUTES = [
    '"a"',
    '"b"',
    '"db.t2"',
    '"DB.T1"',
    '"z"',
    '""',
    "null",
    "5",
    "5.0",
    "true",
    '["a"]',
    "{}",
]
ROUTE_CONFIGS: dict[str, dict[str, str | None]] = {
    "every table": {"iceberg.tables": "db.t1,db.t2"},
    "regex": {
        "iceberg.tables": "db.t1,db.t2",
        "iceberg.tables.route-field": "r",
        "iceberg.table.db.t1.route-regex": "a|5|true|5\\.0",
        "iceberg.table.db.t2.route-regex": "a|b|\\[a\\]",
    },
    "nested regex": {
        "iceberg.tables": "db.t1,db.t2",
        "iceberg.tables.route-field": "m.r",
        "iceberg.table.db.t1.route-regex": "a|5",
        "iceberg.table.db.t2.route-regex": ".*b",
    },
    "dynamic": {
        "iceberg.tables": None,
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "r",
    },
}


UNMATCHED = ["drop", "dead-letter", "fail"]


@pytest.mark.parametrize("unmatched", UNMATCHED)
@pytest.mark.parametrize("name", ROUTE_CONFIGS)
def test_records_are_routed_alike_on_both_paths(name: str, unmatched: str, tmp_path: Path) -> None:
    """For any value of the route field.

    The tables disagree about the types of two fields.
    """
    connector = config(**ALL, **ROUTE_CONFIGS[name], **{"iceberg.tables.unmatched": unmatched})
    plans = [
        plan(tmp_path, schema_of("long"), name="db.t1"),
        plan(
            tmp_path,
            Schema(
                NestedField(1, "c", TYPES["string"], required=True),
                NestedField(2, "r", TYPES["string"], required=False),
            ),
            name="db.t2",
        ),
    ]
    chance = random.Random(7)
    all_values = (["1"], ["1", '"x"', "null", "1.5"], ['"5"', '"x"'])
    record_by_record = part(all_values, UNMATCHED.index(unmatched), of=3)
    for values in all_values:
        lines = [
            f'{{"c":{chance.choice(values)},"r":{route},"m":{{"r":{route}}}}}'.encode()
            for route in (chance.choice(ROUTES) for _ in range(60))
        ]
        lines += [b'{"c":1}', b'{"c":1,"m":"a"}', b'{"c":1,"m":null}', b'{"c":1,"r":"a"']
        batches = [[source(lines)]]
        if values in record_by_record:
            batches.append([source([line]) for line in lines])
        for batch in batches:
            limits = PipelineLimits(block_rows=1 if len(batch) > 1 else 100)
            by_column, by_record = both(connector, plans, batch, limits)
            assert by_column == by_record


NEW_FIELDS: dict[str, str | None] = {
    '[null,"z"]': '"string"',
    '[{},{"a":1}]': '"a"',
    "[[],[null],[1]]": '"long"',
    '[{"x":[]},null,{"x":[null,{"q":1}],"y":2}]': '"q"',
    '{"x":[null,null,2]}': '"x"',
    "[null]": None,
    "[{}]": None,
    "123456789012345678901": "unsupported_type",
    "[1,123456789012345678901]": "unsupported_type",
}


@pytest.mark.parametrize("text", NEW_FIELDS)
def test_the_type_of_a_new_field_is_found_at_any_depth(text: str, tmp_path: Path) -> None:
    """By the first value that has one; a value without any type is refused, not dropped."""
    schema = Schema(NestedField(1, "id", TYPES["long"], required=False))
    connector = config(**ALL, **{"iceberg.tables.evolve-schema-enabled": "true"})
    lines = [f'{{"id":1,"new":{text}}}'.encode(), b'{"id":2}']
    expected = NEW_FIELDS[text]
    for reference_only in (False, True):
        result = run_batches(
            connector,
            [plan(tmp_path, schema)],
            [source(lines)],
            reference_only=reference_only,
        )
        codes = [letter.error.code for letter in result.dead_letters]
        requested = [change for request in result.schema_requests for change in request.changes]
        assert codes == ([expected] if expected == "unsupported_type" else [])
        assert len(requested) == (expected is not None and not codes)
        assert codes or expected is None or expected in requested[0]

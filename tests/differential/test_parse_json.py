"""Texts that ``ParseJson`` reads as they stand in their record give what they give parsed twice."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tests.differential.both_paths import ALL, both
from tests.differential.chains import EVOLVE, ICEBERG, KAFKA, chain, value
from tests.differential.embedded_cases import LEFT, TAKEN
from tests.differential.step_tables import own, table
from tests.differential.support import config, plan, source
from worker.decode.byte_prefilters import escapes
from worker.decode.json_types import guessed_fields
from worker.decode.scanned_json import ScannedJson, json_decoder
from worker.transforms.step_chain import planned, steps_for

INNER = StructType(
    NestedField(31, "n", LongType(), required=False),
    NestedField(32, "b", StringType(), required=False),
    NestedField(33, "x", DoubleType(), required=False),
    NestedField(34, "at", TimestamptzType(), required=False),
    NestedField(35, "ok", BooleanType(), required=False),
    NestedField(36, "l", ListType(41, LongType(), element_required=False), required=False),
    NestedField(
        37, "s", StructType(NestedField(42, "b", StringType(), required=False)), required=False
    ),
)
PARSE = own("ParseJson", field="p")
TABLE = table(id=LongType(), c=StringType(), p=INNER)
USUAL = [
    rb'{"id":%d,"c":"y","p":"{\"n\":%d,\"b\":\"x\",\"x\":1.5,\"ok\":true,\"l\":[1]}"}' % (i, i)
    for i in range(60)
]


def decoder(links: Sequence[Mapping[str, str]], schema: Schema, **extra: str) -> ScannedJson:
    """What decodes the records of a chain, as the pipeline makes it."""
    connector = config(**ALL, **extra, **chain(*links))
    steps, evolves = steps_for(connector), bool(extra)
    assert steps is not None
    found = planned(steps, guessed_fields([schema.fields]), evolves=evolves)
    assert found is not None
    return json_decoder(
        found.fields, report_unexpected=evolves, keeps=True, embedded=found.embedded
    )


def read_in_place(taker: ScannedJson, lines: Sequence[bytes], name: str = "p") -> set[int]:
    """Rows whose text was read unchanged: their column is a struct."""
    rows: set[int] = set()
    for part in taker.decode(pa.array(lines, pa.binary())):
        if part.table.num_rows and pa.types.is_struct(part.table[name].type):
            rows.update(range(len(lines)) if part.rows is None else part.rows.tolist())
    return rows


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
def test_objects_without_other_escapes_are_read_in_place(extra: dict[str, str]) -> None:
    """Only quotes are escaped; also nulls and missing texts."""
    for lines, expected in ((TAKEN, 1), (LEFT, 0)):
        for line in lines:
            taker = decoder([PARSE], TABLE, **extra)
            found = read_in_place(taker, [*USUAL[:20], line, *USUAL[20:]])
            assert (len(found), 20 in found) == (60 + expected, bool(expected)), line


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
def test_texts_of_every_kind_are_equal_on_both_paths(extra: dict[str, str], tmp_path: Path) -> None:
    """Read in place or not: the same rows, dead letters and requests."""
    connector = config(**ALL, **extra, **chain(PARSE))
    for odd in ([*TAKEN, *LEFT], [b'{"p":"\xff{}"}', *TAKEN], [b'{"p":"{\t}"}', *LEFT[:9]]):
        lines = [line for pair in zip(USUAL * 3, odd, strict=False) for line in pair]
        for order in (lines, odd, [*USUAL, *odd]):
            by_column, by_record = both(connector, [plan(tmp_path, TABLE)], [source(order)])
            assert by_column == by_record


MORE = [
    rb'{"p":"{\"new\":1}"}',
    rb'{"p":"{\"n\":1,\"new\":1.5}"}',
    rb'{"p":"{\"new\":12345678901234567.5}"}',
    rb'{"p":"{\"new\":\"text\",\"n\":5}"}',
    rb'{"p":"{\"new\":\"some\\ntext\"}"}',
    rb'{"p":"{\"s\":{\"b\":\"x\",\"new\":[1]}}"}',
    rb'{"new":"\"","p":"{}"}',
    rb'{"new":5,"p":"{\"n\":1}"}',
]


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
def test_names_without_a_column_are_equal_on_both_paths(
    extra: dict[str, str], tmp_path: Path
) -> None:
    """In few and in all records, of the text and of the record."""
    connector = config(**ALL, **extra, **chain(PARSE))
    for lines in (MORE * 9, USUAL + MORE, *([*USUAL[:20], line, line] for line in MORE)):
        by_column, by_record = both(connector, [plan(tmp_path, TABLE)], [source(lines)])
        if not by_column["schemas"]:
            assert by_column == by_record
        assert by_column["schemas"] == by_record["schemas"]


def test_an_escape_is_found_at_any_position_of_a_block() -> None:
    """An escape is found at any place of a block, also if the block is read in pieces."""
    left = rb'{"p":"{\"b\":\"%b\\n\"}"}'
    for size in (2**17 - 26, 2**17 - 12, 2**17):
        lines = [left % (b"x" * (size + more)) for more in range(14)]
        assert not read_in_place(decoder([PARSE], TABLE), lines)
        raw = np.frombuffer(b"".join(lines), np.uint8)
        there = np.flatnonzero(raw == ord("\\"))
        assert escapes(raw, but_quotes=False).tolist() == there.tolist()
        there = there[raw[there + 1] != ord('"')]
        assert escapes(raw, but_quotes=True).tolist() == there.tolist()


# ------------------------------------------------------------------ chains

ROUTER = {"type": f"{KAFKA}RegexRouter"}
ROUTER |= {"regex": "(.*)", "replacement": "$1-x"}
COPY = {"type": f"{ICEBERG}CopyValue", "source.field": "p", "target.field": "q"}
SIBLING = table(id=LongType(), c=StringType(), q=INNER)
TWO = table(id=LongType(), c=StringType(), p=INNER, q=INNER)
CHAINS: dict[str, tuple[list[dict[str, str]], Schema, set[str]]] = {
    "next to it": ([own("ParseJson", field="p", target="q")], SIBLING, {"p"}),
    "below": ([own("ParseJson", field="p", target="q.s")], SIBLING, {"p"}),
    "into itself": ([own("ParseJson", field="p", target="p.s")], TABLE, set()),
    "wanted as a text": (
        [own("ParseJson", field="c", target="p")],
        table(id=LongType(), c=StringType(), p=INNER),
        set(),
    ),
    "behind a router": ([ROUTER, PARSE], TABLE, {"p"}),
    "behind a new name": ([value("ReplaceField", renames="z:p"), PARSE], TABLE, set()),
    "behind a key": ([{"type": f"{KAFKA}ValueToKey", "fields": "p"}, PARSE], TABLE, set()),
    "two": ([PARSE, own("ParseJson", field="q")], TWO, {"p", "q"}),
    "twice": ([PARSE, PARSE], TABLE, set()),
    "a text of a text": ([PARSE, own("ParseJson", field="p.b", target="q")], TWO, {"p"}),
    "over another": ([own("ParseJson", field="q", target="p"), PARSE], TWO, set()),
    "and copied": ([PARSE, COPY], TWO, {"p"}),
    "and extracted": ([PARSE, value("ExtractField", field="p")], table(n=LongType()), {"p"}),
    "no struct": ([PARSE], table(id=LongType(), p=StringType()), set()),
}


def chained(index: int) -> bytes:
    """A record with texts in two fields; some hold a text of a text, some one in a third."""
    deeper = json.dumps({"n": 7}) if index % 9 == 5 else "y"
    texts = {"p": {"n": index, "b": deeper}, "q": {"n": index, "b": "x"}}
    other = json.dumps({"n": 1}) if index % 7 == 3 else "c"
    whole = {"id": index, "c": other} | {name: json.dumps(text) for name, text in texts.items()}
    return json.dumps(whole).encode()


@pytest.mark.parametrize("name", CHAINS)
def test_a_text_is_read_in_place_only_for_a_single_reader(name: str, tmp_path: Path) -> None:
    """The result is the same."""
    links, schema, expected = CHAINS[name]
    connector = config(**ALL, **chain(*links))
    steps = steps_for(connector)
    assert steps is not None
    found = planned(steps, guessed_fields([schema.fields]))
    assert found is not None
    assert set(found.embedded) == expected
    odd = [
        *TAKEN,
        *LEFT[::3],
        b'{"p":"{}","q":5}',
        b'{"q":{"n":1}}',
        rb'{"p":null,"q":"{\"n\":1}"}',
    ]
    for lines in (list(map(chained, range(90))), [*map(chained, range(50)), *odd], odd):
        by_column, by_record = both(connector, [plan(tmp_path, schema)], [source(lines)])
        assert by_column == by_record


def test_texts_that_a_predicate_excludes_are_unchanged() -> None:
    """Where a predicate decides which records are parsed the others' texts are wanted."""
    keys = {
        **chain({**PARSE, "predicate": "t"}),
        "predicates": "t",
        "predicates.t.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.t.pattern": "t",
    }
    steps = steps_for(config(**ALL, **keys))
    assert steps is not None
    found = planned(steps, guessed_fields([TABLE.fields]))
    assert found is not None
    assert not found.embedded


# ------------------------------------------------------------------ learning


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",", ": ")])
@pytest.mark.parametrize("around", [(",", ":"), (", ", ": ")])
def test_white_space_of_text_and_record_may_differ(
    separators: tuple[str, str], around: tuple[str, str]
) -> None:
    """A text may be written with other gaps than the record around it."""
    rows = [{"n": i, "b": "x", "s": {"b": None}} for i in range(30)]
    texts = [json.dumps(row, separators=separators) for row in rows]
    lines = [json.dumps({"id": 1, "p": text}, separators=around).encode() for text in texts]
    taker = decoder([PARSE], TABLE)
    assert len(read_in_place(taker, lines)) == 30
    (found,) = taker.decode(pa.array(lines, pa.binary()))
    assert found.table["p"].to_pylist()[7] == {
        **dict.fromkeys(("x", "at", "ok", "l")),
        **rows[7],
    }
    assert found.seen is not None
    assert found.seen.has_null


def test_texts_with_other_types_are_read_in_place_from_the_second_on() -> None:
    """For example numbers where the column is a text."""
    lines = [rb'{"id":1,"p":"{\"at\":%d,\"n\":1}"}' % i for i in range(50)]
    values = pa.array(lines, pa.binary())
    links = [PARSE]
    connector = config(**chain(*links))
    steps = steps_for(connector)
    assert steps is not None
    found = planned(steps, guessed_fields([TABLE.fields]))
    assert found is not None
    taker = json_decoder(found.fields, report_unexpected=False, embedded=found.embedded)
    (first,) = taker.decode(values)
    assert pa.types.is_string(first.table["p"].type)
    texts = first.table["p"].combine_chunks().cast(pa.binary())
    list(found.embedded["p"].decode(texts))  # as the step does
    (second,) = taker.decode(values)
    assert second.table["p"].type.field("at").type == pa.int64()
    assert second.table["p"].to_pylist()[3]["at"] == 3


def test_unusual_texts_of_a_block_do_not_change_other_rows() -> None:
    """What the odd rows of a block taught the texts' own decoder does not change the others'."""
    odd = [rb'{"id":1,"p":"{\"n\":\"text\"}"}'] * 9
    connector = config(**chain(PARSE))
    steps = steps_for(connector)
    assert steps is not None
    found = planned(steps, guessed_fields([TABLE.fields]))
    assert found is not None
    taker = json_decoder(found.fields, report_unexpected=False, embedded=found.embedded)
    for _ in range(3):
        first, rest = taker.decode(pa.array(USUAL + odd, pa.binary()))
        assert first.table.num_rows == 60
        list(found.embedded["p"].decode(rest.table["p"].combine_chunks().cast(pa.binary())))
    assert found.embedded["p"].types["n"] == pa.string()


# ------------------------------------------------------------------ generated

SCALARS = ["0", "-7", "1.5", "true", "null", '"x"', '""', '"2024-01-02T03:04:05Z"', '"é"', "1e3"]
SCALARS += ['"a\\"b"', '"a\\nb"', "12345678901234567890", '"{}"', '"\\u00e9"', "[1,2]", '{"b":"x"}']
PIECES = [*'\\"{}:, n1e-é/ut', '\\"', '\\\\"', '":', "null", "\\u0022"]


def generated(chance: random.Random) -> str:
    """A record with a text in it, its values drawn from all kinds, most of them usual."""
    names = [name for name in ("n", "b", "x", "at", "ok", "l", "s") if chance.random() < 0.6]
    if chance.random() < 0.05:
        names.append(chance.choice(["n", "new", "é"]))
    usual = {"n": "5", "b": '"x"', "x": "1.5", "at": '"2024-01-02T03:04:05Z"', "ok": "true"}
    usual |= {"l": "[1]", "s": '{"b":"x"}'}
    pick = lambda name: usual.get(name, "5") if chance.random() < 0.9 else chance.choice(SCALARS)  # noqa: E731
    text = "{" + ",".join(f'"{name}":{pick(name)}' for name in names) + "}"
    whole = {"id": chance.randrange(9), "c": chance.choice(["y", "y", "y", '"']), "p": text}
    for name in list(whole):
        if chance.random() < 0.1:
            del whole[name]
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=chance.random() < 0.2)


def damaged(line: str, chance: random.Random) -> str:
    """A record with a piece added, removed or moved."""
    place = chance.randrange(len(line))
    length = chance.choice([0, 0, 1, 1, 2])
    piece = chance.choice([*PIECES, ""])
    return line[:place] + piece + line[place + length :]


@pytest.mark.parametrize("seed", range(16))
def test_generated_texts_are_equal_on_both_paths(seed: int, tmp_path: Path) -> None:
    """Intact and damaged records."""
    chance = random.Random(seed)
    lines = [generated(chance) for _ in range(400)]
    share = (0, 0.02, 0.1, 0.3)[seed % 4]
    lines = [damaged(line, chance) if chance.random() < share else line for line in lines]
    values = [line.encode() for line in lines]
    taken = read_in_place(decoder([PARSE], TABLE), values)
    assert 0 < len(taken) < len(values)
    extra = EVOLVE if seed % 8 > 5 else {}
    connector = config(**ALL, **extra, **chain(PARSE))
    tables = [plan(tmp_path, TABLE)]
    by_column, by_record = both(connector, tables, [source(values[:200]), source(values[200:])])
    if not by_column["schemas"]:
        assert by_column == by_record
    assert by_column["schemas"] == by_record["schemas"]

"""Times, nesting and expressions by columns give what they give record by record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tests.differential.both_paths import both
from tests.differential.cases import TEXTS
from tests.differential.chains import EVOLVE, chain, value
from tests.differential.examples import generated, part
from tests.differential.step_tables import own, table
from tests.differential.support import config, decoded_by_columns, plan, source
from worker.transforms.step_chain import steps_for

ALL = {"errors.tolerance": "all"}
ENVELOPES = {"value.converter.schemas.enable": "true"}
INNER = StructType(
    NestedField(31, "at", TimestamptzType(), required=False),
    NestedField(32, "b", StringType(), required=False),
    NestedField(33, "n", LongType(), required=False),
)


# ------------------------------------------------------------------ times

PATTERNS = {
    "yyyy-MM-dd": "2024-02-29",
    "yyyy-MM-dd HH:mm:ss": "2024-02-29 23:59:58",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX": "2024-02-29T23:59:58.123+05:30",
    "yyyyMMddHHmmssX": "20240229235958Z",
    "ss:mm:HH SSSSSS": "58:59:23 123456",
    "d MMM yyyy": "9 Feb 2024",
    "dd/MM/yy": "29/02/24",
    "EEE h a": "Thu 11 PM",
}
TIMES = [
    *("2024-02-30", "2023-02-29", "2024-13-01", "0000-01-01", "9999-12-31", "-024-01-01"),
    *("2024-02-29 24:00:00", "2024-02-29 23:59:60", "2024-02-29 23:59:58x", " 2024-02-29"),
    *("2024-02-29T23:59:58.123Z", "2024-02-29T23:59:58.123-18:00", "2024-02-29T23:59:58.123+5:30"),
    *("20240229235958+05", "20240229235958-0530", "00:00:00 000999", "00:00:00 999999", "1:2:3 4"),
    *(
        "19 dec 24",
        "Mon 12 am",
        "31 Nov 1999",
        "2024\\u002d02-29",
        "\\uff12024-02-29",
        "2024-02-29 ",
    ),
]
NUMBERS = [
    *("0", "-1", "1700000000123", "-62135596800001", "253402300800000", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775", "-9223372036854776", "1.5", "1e3", "2147483648"),
]


def odd_times() -> list[str]:
    texts = [*TIMES, *PATTERNS.values(), *TEXTS[::4]]
    return [*(f'"{text}"' for text in texts), *NUMBERS, "null", "true", "{}", "[]"]


@pytest.mark.parametrize("target", ["string", "unix", "Date", "Time", "Timestamp"])
def test_timestamp_converter_is_equal_on_both_paths(target: str, tmp_path: Path) -> None:
    """Unusual texts and numbers between every form and unit, into several column types."""
    odd = odd_times()
    units = ["milliseconds", "seconds", "microseconds", "nanoseconds"]
    for place, (pattern, good) in enumerate(PATTERNS.items()):
        keys = {"field": "t", "target.type": target, "format": pattern}
        keys["unix.precision"] = units[place % 4]
        connector = config(**ALL, **chain({**value("TimestampConverter"), **keys}))
        assert steps_for(connector) is not None
        part = odd if place < 2 else odd[place::3]
        lines = [text for one in part for text in (f'{{"t":{one},"a":1}}', f'{{"t":"{good}"}}')]
        batch = source([line.encode() for line in lines])
        kinds = (TimestamptzType(), LongType(), StringType(), DateType())
        schema = table(t=kinds[place % 4], a=LongType())
        by_column, by_record = both(connector, [plan(tmp_path, schema)], [batch])
        assert by_column == by_record, pattern


@pytest.mark.parametrize("target", ["string", "unix", "Date", "Time", "Timestamp"])
def test_timestamp_converter_with_schemas_is_equal_on_both_paths(
    target: str, tmp_path: Path
) -> None:
    """Every form that a schema has, into every other."""
    connect = "org.apache.kafka.connect.data."
    forms: list[tuple[dict[str, Any], list[Any]]] = [
        ({"type": "int32", "name": connect + "Date"}, [0, -1, 19_000, 2**31 - 1]),
        ({"type": "int32", "name": connect + "Time"}, [0, 86_399_999]),
        ({"type": "int64", "name": connect + "Timestamp"}, [0, -1, 1_700_000_000_123]),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, [1_700_000_000_123]),
        ({"type": "int32", "name": "io.debezium.time.Date"}, [5]),
        ({"type": "int32", "name": "io.debezium.time.Year"}, [2024]),
        ({"type": "int64"}, [0, 1_700_000_000, 2**60]),
        ({"type": "int32"}, [5]),
        ({"type": "string"}, ["2024-02-29 23:59:58", "x"]),
    ]
    keys = {"field": "t", "target.type": target, "format": "yyyy-MM-dd HH:mm:ss"}
    connector = config(**ALL, **ENVELOPES, **chain({**value("TimestampConverter"), **keys}))
    for place, (form, values) in enumerate(forms):
        schema = {"type": "struct", "fields": [{"field": "t", "optional": True, **form}]}
        lines = [{"schema": schema, "payload": {"t": one}} for one in [*values, None, *values]]
        kind = (TimestamptzType(), LongType(), StringType())[place % 3]
        for extra in ({}, EVOLVE):
            evolving = config(
                **{**ALL, **ENVELOPES, **extra}, **chain({**value("TimestampConverter"), **keys})
            )
            by_column, by_record = both(
                evolving if extra else connector,
                [plan(tmp_path, table(t=kind))],
                [source([json.dumps(line).encode() for line in lines])],
            )
            assert by_column == by_record, form


ZONES = ["UTC", "Europe/Paris"]
FORMS = ["iso8601", "epoch", *list(PATTERNS)[:5]]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("form", FORMS)
def test_parse_timestamp_is_equal_on_both_paths(form: str, zone: str, tmp_path: Path) -> None:
    """Unusual texts and numbers, at the top level and nested, with and without a zone."""
    texts = [
        "2024-03-31 02:30:00",
        "2024-10-27 02:30:00",
        "2040-07-01 12:00:00",
        "1950-01-01 00:00:00",
    ]
    odd = [*odd_times(), *(f'"{text}"' for text in texts), *(f'"{t}"' for t in TEXTS[40:80:2])]
    keys = {"fields": "t,f.at", "format": form, "timezone": zone, "unit": "s"}
    connector = config(**ALL, **chain({**own("ParseTimestamp"), **keys}))
    good = f'"{PATTERNS.get(form, "2024-02-29T23:59:58Z")}"' if form != "epoch" else "1700000000"
    lines = []
    for one in odd:
        lines += [f'{{"t":{one},"a":1}}', f'{{"t":{good},"f":{{"at":{one},"b":"x"}}}}']
        lines += [f'{{"t":{good},"f":{{"b":"y"}},"a":2}}', f'{{"f":{{"at":{good}}}}}']
    batch = source([line.encode() for line in [*lines, '{"f":5}', '{"t":null,"f":null}', "[]"]])
    kinds = (TimestamptzType(), TimestampType(), StringType())
    for kind in part(kinds, FORMS.index(form) + ZONES.index(zone), of=3):
        schema = table(t=kind, f=INNER, a=LongType())
        by_column, by_record = both(connector, [plan(tmp_path, schema)], [batch])
        assert by_column == by_record


# ------------------------------------------------------------------ nesting

FLAT = table(a=LongType(), a_b=LongType(), c_d_e=StringType(), g=ListType(50, LongType()), f=INNER)
NESTED = [
    *('{"a":1,"g":[1]}', '{"a":{"b":2},"c":{"d":{"e":"x"}}}', '{"a_b":2,"c_d_e":"x"}'),
    *('{"c_d":{"e":"x"}}', '{"c":{"d_e":"x"}}', '{"c_d":{"e":"x"},"c":{"d_e":"y"}}', "{}"),
    *('{"a":{"b":2},"a_b":null}', '{"a_b":null,"a":{"b":2}}', '{"a":{"b":null},"a_b":5}'),
    *('{"a":{"b":{"c":1}}}', '{"a":{"b":[1]}}', '{"g":{"h":1}}', '{"f":{"b":"x"}}', '{"f":5}'),
    *('{"c":{"d":{"e":null}},"c_d_e":"z"}', '{"c":null,"a":null}', '{"c":{},"z":{"y":{"x":1}}}'),
    *('{"a":"null","a_b":1}', '{"":{"a":1}}', '{"a":{"":1}}', '{"a\\u005fb":1,"a":{"b":2}}'),
]


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
def test_flatten_is_equal_on_both_paths(extra: dict[str, str], tmp_path: Path) -> None:
    """Every source of a flat name, alone and combined, with nulls."""
    connector = config(**ALL, **extra, **chain(value("Flatten", delimiter="_")))
    some = NESTED[1:2] * 20
    for lines in (NESTED, [one for one in NESTED for _ in range(3)][::-1], some, some * 4 + NESTED):
        batch = source([line.encode() for line in lines])
        by_column, by_record = both(connector, [plan(tmp_path, FLAT)], [batch])
        if not extra or not by_column["schemas"]:
            assert by_column == by_record
        assert by_column["schemas"] == by_record["schemas"]


EXPLODED = table(
    id=LongType(),
    n=LongType(),
    i=LongType(),
    b=StringType(),
    e=LongType(),
    f=INNER,
    l=ListType(60, LongType(), element_required=False),
)
EXPLODES = {
    "scalars": own("Explode", field="l", element_field="e", key_field="i"),
    "in place": own("Explode", field="e"),
    "keeping": {**own("Explode", field="l", element_field="e"), "keep.empty": "true"},
    "spread": own("Explode", field="m", key_field="i", spread="true"),
    "spread and keep": {**own("Explode", field="m", spread="true"), "keep.empty": "true"},
    "put below": own("Explode", field="l", element_field="f.n", key_field="f.i"),
    "from below": own("Explode", field="f.l", element_field="e"),
}
LISTS = [
    *('{"id":1,"l":[1,2,null],"e":[4,5]}', '{"id":2,"l":[]}', '{"id":3,"l":null}', '{"id":4}'),
    *(
        '{"id":5,"l":5,"e":6}',
        '{"id":6,"l":{"k":1}}',
        '{"id":7,"l":[1,"x"],"e":[1]}',
        '{"l":["x"]}',
    ),
    *(
        '{"id":8,"m":[{"n":1,"b":"x"},{"n":2}],"b":"own"}',
        '{"id":9,"m":[{"id":5},null,{"b":null}]}',
    ),
    *('{"id":1,"m":[{"b":null}],"b":"own"}', '{"id":1,"m":[{"m":1,"l":[1]}],"n":8}', '{"m":[5]}'),
    *('{"f":{"l":[1,2],"b":"x"},"id":3}', '{"f":{"n":5},"l":[1]}', '{"f":5,"l":[1]}', "[]"),
    *('{"id":1,"m":[{"n":"x"},{"n":1}]}', '{"id":1,"m":[{"new":1}]}', '{"id":"x","l":[1,2]}'),
]


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("name", EXPLODES)
def test_explode_is_equal_on_both_paths(name: str, extra: dict[str, str], tmp_path: Path) -> None:
    """Lists of scalars and structs, empty and unusual ones."""
    connector = config(**ALL, **extra, **chain(EXPLODES[name]))
    for lines in (LISTS, [one for one in LISTS for _ in range(4)][::-1]):
        batches = [source([line.encode() for line in lines])]
        by_column, by_record = both(connector, [plan(tmp_path, EXPLODED)], batches)
        if not extra or not by_column["schemas"]:
            assert by_column == by_record
        assert by_column["schemas"] == by_record["schemas"]


def test_explode_in_chains_is_equal_on_both_paths(tmp_path: Path) -> None:
    """Its rows are filtered, cast, routed and exploded again."""
    links = (EXPLODES["spread"], value("Cast", spec="id:string,n:int32"), EXPLODES["scalars"])
    connector = config(**ALL, **chain(*links, value("InsertField", offset_field="n")))
    lines = [
        *('{"m":[{"id":1,"l":[1,2]},{"id":2,"l":[3]}]}', '{"m":[{"id":1,"l":[1]},{"id":2}]}'),
        *('{"m":[{"id":1,"l":[1]},{"id":2,"l":["x"]}]}', '{"m":[{"n":"x","l":[1]},{"l":[2]}]}'),
    ]
    batch = source([line.encode() for line in lines * 3])
    by_column, by_record = both(connector, [plan(tmp_path, EXPLODED)], [batch])
    assert by_column == by_record


def test_exploded_rows_keep_the_order_of_the_elements(tmp_path: Path) -> None:
    """Elements become rows in their order, whole records one after the other."""
    connector = config(**chain(EXPLODES["scalars"]))
    batch = source([b'{"id":%d,"l":[3,1,2]}' % i for i in range(3)])
    (decoded,) = decoded_by_columns(connector, plan(tmp_path, EXPLODED), batch)
    assert decoded.table["e"].to_pylist() == [3, 1, 2] * 3
    assert decoded.places.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


JSON_TABLE = table(id=LongType(), p=INNER, q=INNER)
DOCUMENTS = [
    *('{"n":1,"b":"x"}', " {} ", "", "null", "5", "[1]", '{"n":"x"}', '{"n":1}x', '{"n":1,"n":2}'),
    *('{"at":"2024-01-02T03:04:05Z"}', '{"n":1.5}', '{"new":1}', '{"n":9007199254740993.0}', "{"),
]


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("target", ["", "q", "q.p"])
def test_parse_json_is_equal_on_both_paths(
    target: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """Texts of objects, other values and none, in place and in another field."""
    connector = config(**ALL, **extra, **chain(own("ParseJson", field="p", target=target)))
    lines: list[dict[str, Any]] = [{"id": i, "p": text} for i, text in enumerate(DOCUMENTS)]
    lines += [{"p": None, "q": {"n": 1}}, {"q": {"b": "x"}}, {"p": 5}, {"p": '{"n":1}', "q": 5}]
    usual = [{"id": 1, "p": '{"n": 1, "b": "x"}'}] * 40
    for order in (lines, lines[::-1] * 2, usual[:9], usual + lines + usual):
        batch = source([json.dumps(line).encode() for line in order])
        by_column, by_record = both(connector, [plan(tmp_path, JSON_TABLE)], [batch])
        if not extra or not by_column["schemas"]:
            assert by_column == by_record
        assert by_column["schemas"] == by_record["schemas"]


# ------------------------------------------------------------------ expressions

SOUGHT = table(id=LongType(), n=LongType(), b=StringType(), at=StringType(), f=INNER)
EXPRESSIONS = {
    "paths": own("Jmespath", fields_n="m.n", fields_b="m.b", fields_f="m"),
    "indexes": own("Jmespath", fields_n="l[0]", fields_id="l[-1]", fields_b="m.x[1].b"),
    "struct": {**own("Jmespath", fields_f="{n: id, b: m.b}"), "fields.g": "m.{b: b}"},
    "below": {**own("Jmespath"), "fields.f.n": "id", "fields.f.b": "kafka.topic"},
    "kept": {**own("Jmespath", fields_n="m.n"), "set-null": "false", "fields.f.b": "b"},
    "alone": {**own("Jmespath", keep="false"), "fields.n": "kafka.offset", "fields.id": "id"},
    "times": {
        **own("Jmespath"),
        "fields.at": "epoch_millis_to_iso8601(n)",
        "fields.b": "substr(epoch_seconds_to_iso8601(n), `0`, `10`)",
        "fields.id": "epoch_millis_to_micro(id)",
    },
    "text": {**own("Jmespath", where="b == 'x' || !(m.b)"), "fields.b": "substr(b, `1`, `2`)"},
    "number": own("Jmespath", where="n > `1` && id != `2`"),
    "other kinds": own("Jmespath", where="n == 'x' || b == `1` || id != `true`"),
    "fraction": own("Jmespath", where="n >= `1.5`"),
    "there": own("Jmespath", where="m || l || n"),
}
SEEN = [
    *('{"id":1,"n":2,"b":"x","m":{"n":5,"b":"y","x":[{"b":"p"},{"b":"q"}]},"l":[1,2,3]}', "{}"),
    *('{"id":2,"n":1.5,"b":"","m":{},"l":[]}', '{"id":null,"n":null,"b":null,"m":null,"l":null}'),
    *(
        '{"id":3,"n":"x","b":5,"m":[],"l":{}}',
        '{"n":1700000000123,"id":1700000000,"b":"\\u00e9t\\u00e9"}',
    ),
    *(
        '{"n":true,"id":false,"b":true,"m":5,"l":"ab"}',
        '{"n":-1,"id":9223372036854775807,"b":"xyz"}',
    ),
    *('{"n":9007199254740993.0,"id":1e3}', '{"n":253402300800000,"f":5}', '{"f":{"n":1,"b":"o"}}'),
    *('{"l":[null,5],"m":{"b":null,"x":[{}]}}', '{"kafka":5,"id":1}', '{"n":0,"id":0,"b":"x"}'),
]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_jmespath_is_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """Expressions over values of every kind."""
    connector = config(**ALL, **chain(EXPRESSIONS[name]))
    assert steps_for(connector) is not None
    for lines in (SEEN, [one for one in SEEN for _ in range(4)][::-1], SEEN[:1] * 9):
        batch = source([line.encode() for line in lines])
        by_column, by_record = both(connector, [plan(tmp_path, SOUGHT)], [batch])
        assert by_column == by_record


def test_the_bare_name_kafka_is_the_origin_of_the_record(tmp_path: Path) -> None:
    """It is not a field of that name."""
    connector = config(**ALL, **chain(own("Jmespath", fields_f="kafka", where="kafka")))
    batch = source([b'{"id":1}', b'{"kafka":{"n":5},"id":2}'] * 5)
    by_column, by_record = both(connector, [plan(tmp_path, SOUGHT)], [batch])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) == 10


PLAIN: dict[str, tuple[dict[str, str], Schema, str]] = {
    "converter": (
        {**value("TimestampConverter", field="t"), "target.type": "Timestamp"}
        | {"format": "yyyy-MM-dd HH:mm:ss"},
        table(t=TimestamptzType()),
        '{"t":"2024-02-29 23:59:58"}',
    ),
    "parse": (
        own("ParseTimestamp", fields="t"),
        table(t=TimestamptzType()),
        '{"t":"2024-02-29T23:59:58Z"}',
    ),
    "flatten": (value("Flatten", delimiter="_"), FLAT, '{"a":1,"c":{"d":{"e":"x"},"z":5}}'),
    "explode": (EXPLODES["spread"], EXPLODED, '{"id":1,"m":[{"b":"x","n":1,"new":[]}],"y":{}}'),
    "expressions": (EXPRESSIONS["times"], SOUGHT, '{"n":1700000000,"id":5,"b":"x"}'),
    "json": (own("ParseJson", field="p"), JSON_TABLE, '{"id":1,"p":"{\\"n\\":1}"}'),
}


@pytest.mark.parametrize("name", PLAIN)
def test_common_records_use_the_column_path_only(name: str, tmp_path: Path) -> None:
    """Common records leave nothing to the reference."""
    link, schema, record = PLAIN[name]
    batch = source([record.encode()] * 50)
    (decoded,) = decoded_by_columns(config(**chain(link)), plan(tmp_path, schema), batch)
    assert (len(decoded.places), len(decoded.unexpected)) == (50, 0)


_NAMES = st.sampled_from(["a", "b", "a_b", "c_d_e", "c", "d", "e", "l", "m", "n", "f", "id", "at"])
_VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | st.sampled_from(["x", "2024-02-29", "2024-02-29T03:04:05Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_LINKS = {
    "flatten": value("Flatten", delimiter="_"),
    **EXPLODES,
    "parse": own("ParseTimestamp", fields="at,f.at"),
    "rename": value("ReplaceField", renames="a:l,n:b"),
    "insert": value("InsertField", offset_field="n"),
    "extract": value("ExtractField", field="f"),
    **EXPRESSIONS,
}


@generated(40)
@given(
    names=st.lists(st.sampled_from(sorted(_LINKS)), min_size=1, max_size=3),
    documents=st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), min_size=1, max_size=12),
)
def test_generated_chains_are_equal_on_both_paths(
    names: list[str], documents: list[Any], tmp_path: Path
) -> None:
    """Nesting transformations over generated records."""
    connector = config(**ALL, **chain(*(_LINKS[name] for name in names)))
    batch = source([json.dumps(document).encode() for document in documents])
    columns = {f.name: f.field_type for f in (*EXPLODED.fields, *FLAT.fields)}
    by_column, by_record = both(connector, [plan(tmp_path, table(**columns))], [batch])
    assert by_column == by_record

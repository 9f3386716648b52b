"""Tables of a shop in PostgreSQL, random changes of their rows, and comparisons with other tables.

Rules of this file:
- The last changes of a table insert rows with new keys, enough for each partition of its topic.
  Once a sink has these rows, it has all changes before them.
- Rows are compared as values of the database: numbers, days and instants that a converter writes
  as text or as a number since 1970 are read back.
"""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.support.debezium import ChangeSource

SCHEMA = "shop"
Row = tuple[Any, ...]

# the same names have other types, or no column at all, in other tables
TABLES: Mapping[str, Mapping[str, str]] = {
    "orders": {
        "id": "int primary key",
        "customer": "bigint not null",
        "amount": "numeric(12,2)",
        "placed": "timestamptz",
        "day": "date",
        "note": "text",
        "paid": "boolean",
        "attributes": "jsonb",
        "token": "uuid",
        "weight": "real",
        "score": "double precision",
        "payload": "bytea",
        "created": "timestamp",
        "opens": "time",
    },
    "customers": {
        "id": "bigint primary key",
        "name": "varchar(200) not null",
        "note": "text",
        "amount": "int",
        "created": "timestamptz",
        "active": "boolean not null default true",
    },
    "lines": {
        "order_id": "int not null",
        "line": "smallint not null",
        "amount": "text",
        "price": "numeric(10,4)",
        "id": "uuid",
        "primary key": "(order_id, line)",
    },
    "visits": {
        "id": "int primary key",
        "amount": "numeric",
        "begun": "timestamp(3)",
        "opens": "time(3)",
        "closes": "timetz",
        "lasted": "interval",
        "marks": "bit(5)",
        "mood": "shop.mood",
        "place": "point",
        "days": "date[]",
    },
}
LAST_ROWS = 12
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as the database's timestamps without time zone


def columns(table: str) -> dict[str, str]:
    """Return the columns of a table with their types."""
    return {
        name: kind.replace(" precision", "").split()[0]
        for name, kind in TABLES[table].items()
        if name != "primary key"
    }


def keys(table: str) -> tuple[str, ...]:
    """Return the columns of the primary key."""
    return ("order_id", "line") if table == "lines" else ("id",)


class ChangedShop:
    """The tables, filled and changed at random.

    Args:
        source: the database.
    """

    def __init__(self, source: ChangeSource) -> None:
        self._source = source
        self._number = 0
        self._rows: dict[str, dict[Row, Row]] = {}
        self.removed: dict[str, dict[Row, Row]] = {}
        """The last values of rows whose key was deleted or changed, by table and key."""
        self.deletes = 0
        """Deletes and changes of keys."""

    def create(self, seed: int, rows: int) -> None:
        """Create the tables with some rows; tables of an earlier call are dropped."""
        self._random = random.Random(seed)
        self._number = 0
        self.deletes = 0
        self._rows = {name: {} for name in TABLES}
        self.removed = {name: {} for name in TABLES}
        statements = [
            f"drop schema if exists {SCHEMA} cascade",
            f"create schema {SCHEMA}",
            f"create type {SCHEMA}.mood as enum ('sad', 'happy')",
        ]
        for name, fields in TABLES.items():
            text = ", ".join(f"{column} {kind}" for column, kind in fields.items())
            statements.append(f"create table {SCHEMA}.{name} ({text})")
        self._source.execute(*statements)
        for name in TABLES:
            self._source.execute(*(self._insert(name) for _ in range(rows)))

    def change(self, changes: int) -> None:
        """Change rows in transactions of several tables, then insert the last rows.

        Args:
            changes: statements, at least; 0 changes nothing.
        """
        if not changes:
            return
        while changes > 0:
            count = self._random.randint(1, 6)
            changes -= count
            self._source.execute(*(s for _ in range(count) for s in self._change()))
        for name in TABLES:
            self._source.execute(*(self._insert(name) for _ in range(LAST_ROWS)))

    def rows(self, table: str, *, with_removed: bool = False) -> list[Row]:
        """Return the rows of a table in the database, in a fixed order.

        Args:
            table: its name.
            with_removed: also the last values of removed rows.
        """
        kinds = columns(table)
        names = ", ".join(f"{n}::text" if kind == "jsonb" else n for n, kind in kinds.items())
        rows = self._source.rows(f"select {names} from {SCHEMA}.{table}")
        if with_removed:
            rows += self.removed[table].values()
        return rows_of_sink(rows, table)

    def _change(self) -> Iterator[tuple[str, Sequence[Any]]]:
        name = self._random.choice(list(TABLES))
        rows, names = self._rows[name], list(columns(name))
        chosen = self._random.random()
        if chosen < 0.3 or not rows:
            yield self._insert(name)
            return
        key = self._random.choice(list(rows))
        where = f"where ({', '.join(keys(name))}) = ({', '.join(['%s'] * len(key))})"
        table = f"{SCHEMA}.{name}"
        if chosen < 0.65:
            row = self._row(name, key)
            assign = ", ".join(f"{column} = %s" for column in names)
            rows[key] = row
            yield f"update {table} set {assign} {where}", (*row, *key)
        elif chosen < 0.85:
            self._remove(name, key)
            yield f"delete from {table} {where}", key
            if self._random.random() < 0.3:
                yield self._insert(name, key)
        else:
            new = self._new_key(name)
            self._rows[name][new] = self._changed_key(name, key, new)
            assign = ", ".join(f"{column} = %s" for column in keys(name))
            yield f"update {table} set {assign} {where}", (*new, *key)

    def _changed_key(self, name: str, key: Row, new: Row) -> Row:
        values = dict(zip(columns(name), self._rows[name][key], strict=True))
        self._remove(name, key)
        return tuple({**values, **dict(zip(keys(name), new, strict=True))}.values())

    def _remove(self, name: str, key: Row) -> None:
        self.deletes += 1
        self.removed[name][key] = self._rows[name].pop(key)

    def _insert(self, name: str, key: Row | None = None) -> tuple[str, Sequence[Any]]:
        key = key or self._new_key(name)
        row = self._row(name, key)
        self._rows[name][key] = row
        self.removed[name].pop(key, None)
        marks = ", ".join(["%s"] * len(row))
        return f"insert into {SCHEMA}.{name} values ({marks})", row

    def _new_key(self, name: str) -> Row:
        self._number += 1
        return (self._number // 4, self._number) if name == "lines" else (self._number,)

    def _row(self, name: str, key: Row) -> Row:
        given = dict(zip(keys(name), key, strict=True))
        return tuple(
            given[column]
            if column in given
            else self._value(kind, is_required="not null" in TABLES[name][column])
            for column, kind in columns(name).items()
        )

    def _value(self, kind: str, *, is_required: bool) -> Any:
        if not is_required and self._random.random() < 0.2:
            return None
        return _of_kind(_VALUES, kind)(self._random)


def rows_of_sink(values: Sequence[Row], table: str) -> list[Row]:
    """Return rows that a sink wrote with the values of the database, in the order of ``rows``."""
    kinds = columns(table).values()
    return sorted(
        (tuple(map(_restored, row, kinds)) for row in values),
        key=repr,
    )


def _restored(value: Any, kind: str) -> Any:
    """Return a value as the database has it; ``kind`` is the type of the column."""
    read = _READERS.get((kind, type(value))) or _READERS.get((kind.partition("(")[0], type(value)))
    return value if read is None else read(value)


def _of_fields(value: Mapping[str, Any]) -> Decimal:
    """Return a decimal of variable scale."""
    unscaled = int.from_bytes(value["value"], "big", signed=True)
    return Decimal(unscaled).scaleb(-value["scale"]).normalize()


def _as_bits(value: bytes | str) -> str:
    """Return five bits; they come as bytes, as base64 or as the database writes them."""
    if isinstance(value, str) and len(value) == 5:
        return value
    data = base64.b64decode(value) if isinstance(value, str) else value
    return f"{int.from_bytes(data, 'little'):05b}"


def _as_point(value: bytes | Mapping[str, Any]) -> str:
    """Return a point as the database writes it."""
    if isinstance(value, bytes):
        x, y = struct.unpack("<dd", value[5:])
    else:
        x, y = value["x"], value["y"]
    return f"({x:g},{y:g})"


def _as_double(value: float | str) -> float | str:
    """Return a number; NaN as text, because it does not equal itself."""
    number = float(value)
    return "NaN" if math.isnan(number) else number


def _as_real(value: float | str) -> float | str:
    """Return the nearest number of 32 bits."""
    return _as_double(struct.unpack("f", struct.pack("f", float(value)))[0])


def _in_utc(value: time) -> time:
    """Return a time of day without its zone."""
    moment = datetime.combine(_EPOCH, value)
    return (moment if value.tzinfo is None else moment.astimezone(UTC)).time()


_READERS: Mapping[tuple[str, type], Callable[[Any], Any]] = {
    ("numeric", Decimal): Decimal.normalize,
    ("numeric", str): lambda value: Decimal(value).normalize(),
    ("real", float): _as_real,
    ("real", str): _as_real,
    ("double", float): _as_double,
    ("double", str): _as_double,
    ("uuid", str): UUID,
    ("bytea", str): base64.b64decode,
    ("bytea", memoryview): bytes,
    ("timestamptz", str): lambda value: datetime.fromisoformat(value).astimezone(UTC),
    ("timestamptz", datetime): lambda value: value.astimezone(UTC),
    ("timestamp", int): lambda value: _EPOCH + timedelta(microseconds=value),
    ("timestamp", str): lambda value: datetime.fromisoformat(value).replace(tzinfo=None),
    ("date", int): lambda value: _EPOCH.date() + timedelta(days=value),
    ("date", str): lambda value: date.fromisoformat(value.removesuffix("Z")),
    ("time", int): lambda value: (_EPOCH + timedelta(microseconds=value)).time(),
    ("numeric", dict): _of_fields,
    ("timestamp(3)", int): lambda value: _EPOCH + timedelta(milliseconds=value),
    ("time(3)", int): lambda value: (_EPOCH + timedelta(milliseconds=value)).time(),
    ("timetz", str): lambda value: _in_utc(time.fromisoformat(value)),
    ("timetz", time): _in_utc,
    ("interval", int): lambda value: timedelta(microseconds=value),
    ("bit", bytes): _as_bits,
    ("bit", str): _as_bits,
    ("point", bytes): _as_point,
    ("point", dict): _as_point,
    ("date[]", list): lambda value: [_restored(day, "date") for day in value],
    ("time", str): lambda value: time.fromisoformat(value).replace(tzinfo=None),
}


def _of_kind(known: Mapping[str, Any], kind: str) -> Any:
    return known.get(kind) or known[kind.partition("(")[0]]


def _text(chance: random.Random) -> str:
    texts = ("", "null", "é€😀", 'a "quoted" \\ text', "tab\tline\n", " 12 ", "x" * 300)
    return chance.choice(texts) + chance.choice(("", str(chance.randint(0, 99))))


def _instant(chance: random.Random) -> datetime:
    first = datetime(1969, 12, 30)  # noqa: DTZ001 - with and without time zone, as the column is
    seconds = chance.choice((chance.randint(0, 300_000), chance.randint(0, 4_000_000_000)))
    return first + timedelta(seconds=seconds, microseconds=chance.choice((0, 1000, 123_456)))


def _milliseconds(chance: random.Random) -> datetime:
    moment = _instant(chance)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


_VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    "int": lambda chance: chance.choice((0, -1, 2**31 - 1, -(2**31), chance.randint(1, 999))),
    "bigint": lambda chance: chance.choice((0, 2**53 + 1, -(2**63), chance.randint(1, 999))),
    "numeric": lambda chance: Decimal(
        chance.choice(("0.00", "-0.01", "999999.99", str(chance.randint(0, 10**6) / 100)))
    ),
    "text": _text,
    "varchar": lambda chance: _text(chance)[:200],
    "boolean": lambda chance: chance.random() < 0.5,
    "jsonb": lambda chance: json.dumps(
        chance.choice(({}, [], {"a": [1, None, {"b": "é"}]}, "text", 1.5, None)),
        ensure_ascii=False,
    ),
    "uuid": lambda chance: str(UUID(int=chance.getrandbits(128))),
    "real": lambda chance: chance.choice((0.0, 1.1, -2.5e-7, 3.4e38, -math.inf, chance.random())),
    "double": lambda chance: chance.choice(
        (0.0, 0.1 + 0.2, 1e300, -5e-324, math.nan, math.inf, chance.random())
    ),
    "bytea": lambda chance: chance.choice((b"", b"\x00\xff", chance.randbytes(40))),
    "timestamptz": lambda chance: _instant(chance).replace(tzinfo=UTC),
    "timestamp": _instant,
    "date": lambda chance: _instant(chance).date(),
    "time": lambda chance: _instant(chance).time(),
    "timestamp(3)": _milliseconds,
    "time(3)": lambda chance: _milliseconds(chance).time(),
    "timetz": lambda chance: _instant(chance).time().replace(tzinfo=timezone(timedelta(hours=2))),
    # Debezium computes microseconds as double, so digits beyond would not be the database's
    "interval": lambda chance: timedelta(
        days=chance.choice((0, -1, 40)), seconds=chance.randint(0, 200_000) / 2
    ),
    "bit": lambda chance: f"{chance.randint(0, 31):05b}",
    "shop.mood": lambda chance: chance.choice(("sad", "happy")),
    "point": lambda chance: f"({chance.randint(-9, 9)}.5,{chance.randint(0, 9)})",
    "date[]": lambda chance: [_instant(chance).date() for _ in range(chance.randint(1, 3))],
}

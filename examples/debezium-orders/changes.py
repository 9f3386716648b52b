"""Prints the changes of a table of orders as Debezium writes them: KEY|VALUE in each line.

Key and value are envelopes with schemas, as from JsonConverter with its defaults. Dates are those
of time.precision.mode=connect. Debezium writes a tombstone after each delete.
"""

from __future__ import annotations

import json
from typing import Any

DATE = {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1}
COLUMNS: dict[str, Any] = {
    "order_number": {"type": "int32"},
    "order_date": DATE,
    "purchaser": {"type": "int32"},
    "quantity": {"type": "int32"},
    "product_id": {"type": "int32"},
}
TIME_MS = 1_763_683_199_000
SERVER = "dbserver1.inventory.orders"
Row = dict[str, int]


def struct(fields: dict[str, Any], name: str, *, optional: bool = False) -> dict[str, Any]:
    """Return the schema of a struct."""
    listed = [{"optional": False, **kind, "field": field} for field, kind in fields.items()]
    return {"type": "struct", "fields": listed, "optional": optional, "name": name}


SOURCE = struct(
    {
        "version": {"type": "string"},
        "connector": {"type": "string"},
        "name": {"type": "string"},
        "ts_ms": {"type": "int64"},
        "snapshot": {"type": "string", "optional": True},
        "db": {"type": "string"},
        "table": {"type": "string", "optional": True},
        "file": {"type": "string"},
        "pos": {"type": "int64"},
    },
    "io.debezium.connector.mysql.Source",
)
ROW = struct(COLUMNS, f"{SERVER}.Value", optional=True)
KEY = struct({"order_number": COLUMNS["order_number"]}, f"{SERVER}.Key")
ENVELOPE = struct(
    {
        "before": ROW,
        "after": ROW,
        "source": SOURCE,
        "op": {"type": "string"},
        "ts_ms": {"type": "int64", "optional": True},
    },
    f"{SERVER}.Envelope",
)


def change(position: int, op: str, before: Row | None, after: Row | None) -> str:
    """Return the line of one change."""
    number = (after or before or {})["order_number"]
    source = {
        "version": "3.3.1.Final",
        "connector": "mysql",
        "name": "dbserver1",
        "ts_ms": TIME_MS + position,
        "snapshot": "true" if op == "r" else "false",
        "db": "inventory",
        "table": "orders",
        "file": "mysql-bin.000003",
        "pos": position,
    }
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": TIME_MS}
    key = json.dumps({"schema": KEY, "payload": {"order_number": number}})
    return f"{key}|{json.dumps({'schema': ENVELOPE, 'payload': value})}"


def order(number: int, day: int, purchaser: int, quantity: int, product: int) -> Row:
    """Return a row; the day counts from 1970-01-01."""
    return dict(zip(COLUMNS, (number, day, purchaser, quantity, product), strict=True))


def main() -> None:
    """Print a snapshot of two orders, then inserts, updates, a delete and its tombstone."""
    first, second = order(10001, 20412, 1001, 1, 102), order(10002, 20413, 1002, 2, 105)
    third = order(10003, 20414, 1002, 2, 106)
    more = {**third, "quantity": 5}
    print(change(0, "r", None, first))
    print(change(0, "r", None, second))
    print(change(154, "c", None, third))
    print(change(310, "u", third, more))
    print(change(466, "u", first, {**first, "product_id": 107}))
    print(change(622, "d", second, None))
    print(f"{json.dumps({'schema': KEY, 'payload': {'order_number': 10002}})}|")


if __name__ == "__main__":
    main()

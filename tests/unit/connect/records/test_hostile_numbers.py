"""Numbers and texts made to stop a worker: all are read or refused at once, in a child process.

A pattern that tries digits twice never ends, and holds the interpreter meanwhile; a parser that
reads beyond its tables ends the process. Neither may happen to the suite.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_S = 120  # one text that is tried digit by digit takes longer by itself
ROOT = Path(__file__).parents[4]
TEXTS = """
NINES = "9" * 300_000
TEXTS = [
    *(NINES, NINES + "x", "-." + NINES + "x", f"{NINES}.{NINES}x", f"1e{NINES}x", f"0x{NINES}x"),
    *(f"1e-{NINES}", f"0x{NINES}.{NINES}p1x", " " * 300_000 + "x", "-" * 300_000),
    *("1E+999999999", "1e-999999999", "-0E+99999", "0e99999999999999999999", "1E400"),
]
"""
TRANSFORMS = """
from connect.config.key import list_of
from connect.errors import RecordError
from connect.records.transforms.cast import cast
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.literals import parsed
from connect.records.transforms.mask_field import masked
from connect.records.transforms.timestamp_converter import TimestampConversion
from connect.records.conversion.numbers import decimal_converter, to_double, to_float, to_long
from connect.model.records import Float32, Timestamp
from decimal import Decimal

KINDS = ("int8", "int64", "float32", "float64", "boolean", "string")
VALUES = [*TEXTS, *map(Decimal, TEXTS[-5:-2]), 10**999, -(10**999), Timestamp(10**999)]
OPTIONS = {"target.type": "Timestamp", "format": "yy", "unix.precision": "microseconds"}
times = TimestampConversion(OPTIONS)

def tried(read, *given):
    try:
        read(*given)
    except (RecordError, ValueError):
        pass

for value in VALUES:
    for kind in KINDS:
        tried(cast, value, kind)
    tried(times.convert, value)
    for column in (to_long, to_double, to_float, decimal_converter(38, 2)):
        tried(column, value)
for text in TEXTS:
    for value in (1, 1.5, Float32(1.5), Decimal(1), "x"):
        tried(masked, value, text)
    parsed(text)
    list_of(text)
print("done")
"""
COLUMNS = """
import json
import numpy as np
import pyarrow as pa
from worker.transforms.cast import cast_column
from worker.transforms.mask_field import mask_column
from worker.decode.json_decoder import JsonDecoder

NUMBERS = [
    *("1e-999999999", "-0e-999999999", "1E-99", "1e-77", '"1e-999999999"', '"+1E-999999999"'),
    *('"1\\\\u0065-999999999"', '"1e\\\\u002d999999999"', '"1e-\\\\u0039999999999"'),
    *('"1\\\\u002e5e-999999999"', "1e999999999", "0e999999999"),
]
decimal = pa.decimal128(10, 2)
for kind in (decimal, pa.list_(decimal), pa.struct([("b", decimal)])):
    for number in NUMBERS:
        shown = f"[{number}]" if pa.types.is_list(kind) else number
        shown = f'{{"b" : {number}}}' if pa.types.is_struct(kind) else shown
        row = f'{{"a" : {shown}}}'.encode()
        for behavior in (False, True):
            decoder = JsonDecoder({"a": kind}, report_unexpected=behavior)
            found = decoder.decode(pa.array([row, b'{"a":null}']))
            assert number == "0e999999999" or found.refused.tolist() == [0], (number, found)
column = pa.array(TEXTS)
for kind in ("int8", "int64", "float64", "boolean", "string"):
    cast_column(column, kind)
for text in TEXTS:
    mask_column(pa.array([1, 2]), text)
    mask_column(pa.array([1.5]), text)
print("done")
"""


def reported(script: str) -> str:
    """Return the output of a child process with a timeout."""
    done = subprocess.run(
        [sys.executable, "-c", TEXTS + script],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_no_text_or_number_holds_up_the_reference() -> None:
    """Casts, masks, times, literals, columns and option lists have a result or an error in time."""
    assert reported(TRANSFORMS) == "done\n"


def test_no_text_or_number_ends_the_column_path() -> None:
    """Exponents beyond Arrow's tables never reach its decimals, however they are written."""
    assert reported(COLUMNS) == "done\n"

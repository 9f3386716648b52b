"""Values of records as variants, in Parquet's binary encoding.

Rules of this file:
- Numbers without fraction take as few bytes as they need: readers treat all of them as one type.
- Fields of objects are sorted by name, and so are the names of the metadata. Null is a value within
  a variant. A null of the whole column is no variant.

Source:
    Parquet's ``VariantEncoding.md``, version 1; Iceberg Kafka Connect ``RecordConverter``; differs
    by accepting Connect's dates and times at any place.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from connect.model.records import Date, Float32, Int8, Int16, Int32, Struct, Time, Timestamp
from connect.records.conversion.conversion_failure import Unconvertible, kind_of, wrong_type

_EMPTY_METADATA: Final = b"\x11\x00\x00"
_SORTED: Final = 0x10
_VERSION: Final = 0x01
_SHORT_TEXT_MAX: Final = 63
_DECIMAL_DIGITS_MAX: Final = 38
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_MICRO: Final = dt.timedelta(microseconds=1)
_LARGE: Final = 256  # the first number that needs two bytes
_OBJECT: Final = 2
_ARRAY: Final = 3

Encode = Callable[[Any, Mapping[str, int]], bytes]


def to_variant(value: Any) -> dict[str, bytes]:
    """Convert a value of any type.

    Raises:
        Unconvertible: a key of a map is no text; a number has too many digits; it is nested too
            deeply.
    """
    try:
        names: set[str] = set()
        _collect(value, names)
        ordered = tuple(sorted(names, key=str.encode)) if len(names) > 1 else tuple(names)
        metadata, ids = _metadata(ordered)
        return {"metadata": metadata, "value": _encoded(value, ids)}
    except RecursionError:
        raise Unconvertible("too_deep", "the value is nested too deeply for a variant") from None
    except UnicodeEncodeError:
        raise Unconvertible("bad_text", "the text contains half of a character") from None


def _collect(value: Any, names: set[str]) -> None:
    kind = type(value)
    if kind is list:
        for item in value:
            if type(item) in _NESTED:
                _collect(item, names)
    elif kind in _NESTED:
        for key, item in _fields(value).items():
            if type(key) is not str:
                raise Unconvertible(
                    "wrong_type", f"a key of a map is a {kind_of(key)}; in a variant it is a text"
                )
            names.add(key)
            if type(item) in _NESTED:
                _collect(item, names)


def _fields(value: Any) -> Mapping[Any, Any]:
    """Return the fields of a map or struct; a null of a struct has its schema's ``null_value``."""
    if type(value) is dict:
        return value
    schema, fields = value.schema, value.values
    defaults = {n: s.null_value for n, s in schema.fields if s.null_value is not None}
    return {**fields, **{n: v for n, v in defaults.items() if fields.get(n) is None}}


@lru_cache(maxsize=1024)
def _metadata(names: tuple[str, ...]) -> tuple[bytes, Mapping[str, int]]:
    if not names:
        return _EMPTY_METADATA, {}
    texts = [name.encode() for name in names]
    ends = list(accumulate(map(len, texts), initial=0))
    width = _width(max(ends[-1], len(texts)))
    header = _VERSION | _SORTED | (width - 1) << 6
    numbers = [len(texts), *ends]
    packed = b"".join(n.to_bytes(width, "little") for n in numbers)
    return bytes([header]) + packed + b"".join(texts), {name: i for i, name in enumerate(names)}


def _encoded(value: Any, ids: Mapping[str, int]) -> bytes:
    encode = _ENCODERS.get(type(value))
    if encode is None:
        raise wrong_type(value, "variant")
    return encode(value, ids)


def _object(value: Any, ids: Mapping[str, int]) -> bytes:
    ordered = sorted([(ids[name], item) for name, item in _fields(value).items()], key=_first)
    return _container(
        _OBJECT, [number for number, _ in ordered], [item for _, item in ordered], ids
    )


def _array(values: list[Any], ids: Mapping[str, int]) -> bytes:
    return _container(_ARRAY, [], values, ids)


def _container(kind: int, numbers: list[int], values: list[Any], ids: Mapping[str, int]) -> bytes:
    """Encode an object or array: a header, the count, ids of fields, offsets and values."""
    items = [_encoded(value, ids) for value in values]
    ends = list(accumulate(map(len, items), initial=0))
    count, last_id = len(items), numbers[-1] if numbers else 0
    if count < _LARGE and ends[-1] < _LARGE and last_id < _LARGE:
        return bytes((kind, count, *numbers, *ends)) + b"".join(items)
    width, id_width, is_large = _width(ends[-1]), _width(last_id), count >= _LARGE
    sizes = (width - 1) << 2
    if kind == _OBJECT:
        sizes |= (id_width - 1) << 4 | is_large << 6
    else:
        sizes |= is_large << 4
    return b"".join(
        (
            bytes([kind | sizes]),
            count.to_bytes(4 if is_large else 1, "little"),
            *(number.to_bytes(id_width, "little") for number in numbers),
            *(end.to_bytes(width, "little") for end in ends),
            *items,
        )
    )


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _width(number: int) -> int:
    """Return the bytes of an offset."""
    return max((number.bit_length() + 7) // 8, 1)


def _boolean(value: bool, _: Mapping[str, int]) -> bytes:
    return b"\x04" if value else b"\x08"


def _integer(value: int, _: Mapping[str, int]) -> bytes:
    if -128 <= value <= 127:
        return bytes((3 << 2, value & 255))
    bits = (value if value >= 0 else ~value).bit_length() + 1
    for header, width in _INTEGERS:
        if bits <= width * 8:
            return header + value.to_bytes(width, "little", signed=True)
    return _unscaled(value, 0)


def _float(value: float, _: Mapping[str, int]) -> bytes:
    return struct.pack("<Bd", 7 << 2, value)


def _float32(value: float, _: Mapping[str, int]) -> bytes:
    return struct.pack("<Bf", 14 << 2, value)


def _decimal(value: Decimal, _: Mapping[str, int]) -> bytes:
    if not value.is_finite():
        raise Unconvertible("not_a_number", "a decimal of a variant is a finite number")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if max(exponent, -exponent) > _DECIMAL_DIGITS_MAX:
        raise _too_long()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return _unscaled(unscaled * 10 ** max(exponent, 0), max(-exponent, 0))


def _unscaled(number: int, scale: int) -> bytes:
    for header, width, digits in _DECIMALS:
        if abs(number) < 10**digits and scale <= digits:
            return bytes([header, scale]) + number.to_bytes(width, "little", signed=True)
    raise _too_long()


def _too_long() -> Unconvertible:
    return Unconvertible("out_of_range", "a number of a variant has more than 38 digits")


def _text(value: str, _: Mapping[str, int]) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT_TEXT_MAX:
        return bytes((len(data) << 2 | 1,)) + data
    return b"\x40" + len(data).to_bytes(4, "little") + data


def _binary(value: bytes, _: Mapping[str, int]) -> bytes:
    return b"\x3c" + len(value).to_bytes(4, "little") + value


def _of_number(type_id: int, width: int, number: int) -> bytes:
    try:
        return bytes([type_id << 2]) + number.to_bytes(width, "little", signed=True)
    except OverflowError:
        raise Unconvertible("out_of_range", "an instant of a variant is out of range") from None


def _date(value: dt.date, _: Mapping[str, int]) -> bytes:
    return _of_number(11, 4, value.toordinal() - _EPOCH_ORDINAL)


def _datetime(value: dt.datetime, _: Mapping[str, int]) -> bytes:
    if value.tzinfo is None:
        return _of_number(13, 8, (value.replace(tzinfo=dt.UTC) - _EPOCH) // _MICRO)
    return _of_number(12, 8, (value - _EPOCH) // _MICRO)


def _time(value: dt.time, _: Mapping[str, int]) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _of_number(17, 8, seconds * 1_000_000 + value.microsecond)


def _timestamp(value: Timestamp, _: Mapping[str, int]) -> bytes:
    if value.nanos % 1000:
        return _of_number(18, 8, value.millis * 1_000_000 + value.nanos)
    return _of_number(12, 8, value.millis * 1000 + value.nanos // 1000)


_NESTED: Final = frozenset({dict, list, Struct})
_INTEGERS: Final = ((b"\x10", 2), (b"\x14", 4), (b"\x18", 8))
_DECIMALS: Final = ((8 << 2, 4, 9), (9 << 2, 8, 18), (10 << 2, 16, _DECIMAL_DIGITS_MAX))
_ENCODERS: Final[Mapping[type, Encode]] = {
    type(None): lambda _value, _ids: b"\x00",
    bool: _boolean,
    int: _integer,
    Int8: _integer,
    Int16: _integer,
    Int32: _integer,
    float: _float,
    Float32: _float32,
    Decimal: _decimal,
    str: _text,
    bytes: _binary,
    uuid.UUID: lambda value, _: b"\x50" + value.bytes,
    dt.date: _date,
    dt.datetime: _datetime,
    dt.time: _time,
    Date: lambda value, _: _of_number(11, 4, value.days),
    Time: lambda value, _: _of_number(17, 8, value.millis * 1000),
    Timestamp: _timestamp,
    dict: _object,
    Struct: _object,
    list: _array,
}

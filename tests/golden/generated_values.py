"""Generate values and schemas from a seed, in the format of the recordings."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

NUMBERS = [
    *("0", "1", "-1", "+5", "007", "127", "128", "-128", "-129", "300", "32767", "32768", "65536"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400", "1E+2"),
    *("1.5", "-0.0", ".5", "5.", "1e3", "1E-3", "1_000", "1,000", "0x1F", "5d", "5f", "5L", "NaN"),
    *(
        "Infinity",
        "-Infinity",
        "inf",
        "1.005",
        "0.1",
        "3.4028235e38",
        "3.5e38",
        "1e-46",
        "4.9e-324",
    ),
    *("12345678901234567890.123456789", "\u0661\u0662", "12 ", " 12", "1\u00a0", "--1", "1e", "e1"),
]
DATES = [
    *("2024-02-29", "2023-02-29", "1969-12-31", "1970-01-01", "0001-01-01", "0000-01-01"),
    *("9999-12-31", "10000-01-01", "+10000-01-01", "-0001-01-01", "2024-2-9", "2024-13-01"),
    *("20240229", "2024-060", "2024-W05-1", "24-01-02", "2024-01-02Z", "2024-01-02+01:00"),
]
TIMES = [
    *("07:51:30", "07:51:30.888", "07:51", "7:51", "24:00:00", "23:59:60", "23:59:59.999999999"),
    *("07:51:30.1234567", "07:51:30Z", "07:51:30+02:00", "T07:51:30", "07:51:30,5", "07:51:30."),
]
INSTANTS = [
    *("2023-05-18T11:22:33Z", "2023-05-18T11:22:33", "2023-05-18 11:22:33", "2023-05-18T11:22Z"),
    *("2023-05-18T11:22:33.123456789Z", "2023-05-18T11:22:33.5+02:00", "2023-05-18T11:22+02:00"),
    *("2023-05-18T11:22:33-0800", "2023-05-18T11:22:33-08", "2023-05-18 11:22:33 +00:00"),
    *("1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "+10000-01-01T00:00:00Z"),
    *("2023-05-18t11:22:33z", "2023-05-18T24:00:00Z", "2023-05-18T11:22:33+18:00"),
    *("2023-05-18T11:22:33+18:01", "2023-05-18T11:22:33+01:00:30", "2023-05-18T11:22:33[UTC]"),
    *(
        "2023-05-18T11:22:33 Z",
        "2023-05-18T11:22:33+0000",
        "2023-05-18T11:22:33.Z",
        "1684408953000",
    ),
    *("Thu, 18 May 2023 11:22:33 GMT", "2023/05/18 11:22:33", "18.05.2023", "18 May 2023"),
]
IDENTIFIERS = [
    *("f79c3e09-677c-4bbd-a479-3f349cb785e7", "F79C3E09-677C-4BBD-A479-3F349CB785E7"),
    *("f79c3e09677c4bbda4793f349cb785e7", "1-1-1-1-1", "{f79c3e09-677c-4bbd-a479-3f349cb785e7}"),
    *("f79c3e09-677c-4bbd-a479-3f349cb785e70", "g79c3e09-677c-4bbd-a479-3f349cb785e7", "----"),
]
ENCODED = [
    "AQIDBA==",
    "AQIDBA",
    "AQ",
    "AQIDB",
    "-_-_",
    "+/+/",
    "AQ ID",
    "AQID\n",
    "====",
    "A",
    "AQI=",
]
LITERALS = [
    *(
        "",
        "x",
        "true",
        "TRUE",
        "false",
        "False",
        "yes",
        "t",
        "null",
        " ",
        "a b",
        "a.b",
        "a,b",
        "a:b",
    ),
    *(
        "\u00e9",
        "e\u0301",
        "\u4e2d\u6587",
        "\U0001f600",
        "\u0130",
        "\u00df",
        "\ufeffx",
        "\x00",
        "\u2028",
    ),
    *('"q"', "\\", "/", "{}", "[]", "[1,2]", '{"a":1}', '{"a":1', "$1", "${x}", "\t\n", "a" * 300),
]
TEXTS = [*NUMBERS, *DATES, *TIMES, *INSTANTS, *IDENTIFIERS, *ENCODED, *LITERALS]
INTEGERS = [
    *(0, 1, -1, 2, 5, 42, 127, 128, -128, -129, 255, 32767, 32768, -32769, 65536, 16777217),
    *(2147483647, 2147483648, -2147483648, -2147483649, 9007199254740993, 1684408953123),
    *(86399, 86400, 86399999, 86400000, 86399999999, 86400000000, -86400000, 2932896, 2932897),
    *(9223372036854775807, -9223372036854775808, 253402300799999, 253402300800000, -1, -999, 19495),
    *(-62135596800000, -62135596800001, 1684408953, 1684408953123456, 1684408953123456789),
]
DOUBLES = [
    *(0.0, 0.5, 1.5, -1.5, 5.0, -5.0, 0.1, 1e10, 1e20, 1e-7, 123456.789, 16777217.0, 3.4028235e38),
    *(3.5e38, 1.7976931348623157e308, 5e-324, 1e-46, 2147483648.0, 9.223372036854776e18, 0.001),
    *(
        1234567.0,
        9999999.0,
        10000000.0,
        0.00099,
        1e7,
        1.0e-3,
        100.0,
        2.5,
        0.3,
        1e16,
        1e15,
        1e22,
        1e23,
    ),
]
DECIMALS = [
    *("0", "1.20", "-1.20", "1E+2", "1E-3", "0.000", "12345678.90", "123456789.01", "99999999.995"),
    *("1.005", "100", "1e-39", "12345678901234567890123456789012345678", "0E-10", "0E+3"),
]
NAMES = ["a", "b", "c", "id", "name", "A", "ts", "a.b", "", "x y", "\u00e9", "d", "user", "_cdc"]


def integer(rng: Random) -> int:
    """A number of 64 bits."""
    if rng.random() < 0.7:
        return max(-(2**63), min(2**63 - 1, rng.choice(INTEGERS) + rng.choice((0, 0, 0, 1, -1))))
    return rng.getrandbits(rng.randrange(1, 63)) * rng.choice((1, -1))


def double(rng: Random) -> float:
    """A finite number."""
    if rng.random() < 0.7:
        return rng.choice(DOUBLES)
    return rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randrange(-12, 25)


def text(rng: Random) -> str:
    """A text that something may take for something else."""
    chosen = rng.choice(TEXTS)
    return changed(rng, chosen) if rng.random() < 0.25 else chosen


def changed(rng: Random, given: str) -> str:
    """A text with a character lost or another."""
    if not given:
        return given
    at = rng.randrange(len(given))
    kept = rng.choice((given[:at], given[: at + 1]))
    return kept + rng.choice(("", " ", "0", "9", "-", ":", "Z", "\u0660", ".")) + given[at + 1 :]


def date(rng: Random) -> str:
    """A date as Java's LocalDate has it."""
    year = rng.choice((1, 1582, 1900, 1969, 1970, 2000, 2024, 9999))
    return f"{year:04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def scalar(rng: Random) -> Any:
    """A value without schema and without inner values."""
    kind = rng.randrange(20)
    if kind < 5:
        return text(rng)
    if kind < 9:
        return integer(rng)
    if kind < 12:
        return double(rng)
    return (
        None,
        True,
        False,
        {"$int32": integer(rng) % 2**32 - 2**31},
        {"$float32": rng.choice((1.5, 0.1, 16777216.0, -0.25, 3.4e38, "NaN", "Infinity"))},
        {"$decimal": rng.choice(DECIMALS)},
        {"$bytes": base64.b64encode(rng.randbytes(rng.choice((0, 1, 4, 16)))).decode()},
        {"$timestamp": rng.choice((0, 1, -1, 1684408953123, -86400001, 253402300800000))},
    )[kind - 12]


def value(rng: Random, depth: int = 3) -> Any:
    """A value without schema."""
    if depth and rng.random() < 0.3:
        if rng.random() < 0.6:
            return fields(rng, depth - 1)
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return scalar(rng)


def fields(rng: Random, depth: int = 2) -> dict[str, Any]:
    """A map with some of the usual names."""
    names = rng.sample(NAMES, rng.randrange(5))
    return {name: value(rng, depth) for name in names}


_LOGICAL = {
    "org.apache.kafka.connect.data.Decimal": "bytes",
    "org.apache.kafka.connect.data.Date": "int32",
    "org.apache.kafka.connect.data.Time": "int32",
    "org.apache.kafka.connect.data.Timestamp": "int64",
}
_DEBEZIUM = {
    "io.debezium.time.Date": "int32",
    "io.debezium.time.MicroTimestamp": "int64",
    "io.debezium.time.Timestamp": "int64",
    "io.debezium.time.MicroTime": "int64",
    "io.debezium.time.ZonedTimestamp": "string",
    "io.debezium.data.Json": "string",
    "io.debezium.data.Uuid": "string",
}
_PLAIN = ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes")


def schema(rng: Random, depth: int = 2) -> dict[str, Any]:
    """A schema in the envelope's form."""
    generated: dict[str, Any] = {"optional": rng.random() < 0.5}
    kind = rng.random()
    if depth and kind < 0.15:
        return {**struct(rng, depth - 1), **generated}
    if depth and kind < 0.22:
        return {"type": "array", "items": schema(rng, depth - 1), **generated}
    if depth and kind < 0.28:
        keys = {"type": rng.choice(("string", "string", "int32")), "optional": False}
        return {"type": "map", "keys": keys, "values": schema(rng, depth - 1), **generated}
    if kind < 0.5:
        name = rng.choice(list(_LOGICAL))
        generated |= {"type": _LOGICAL[name], "name": name, "version": 1}
        if name.endswith("Decimal"):
            generated["parameters"] = {"scale": str(rng.choice((0, 1, 2, 2, 5, 10)))}
    elif kind < 0.57:
        name = rng.choice(list(_DEBEZIUM))
        generated |= {"type": _DEBEZIUM[name], "name": name, "version": 1}
    else:
        generated["type"] = rng.choice(_PLAIN)
        if rng.random() < 0.25:
            generated["default"] = _default(rng, generated["type"])
        if rng.random() < 0.1:
            generated |= {"name": rng.choice(("n", "x.Y")), "doc": "d", "parameters": {"p": "1"}}
    return generated


def _default(rng: Random, kind: str) -> Any:
    if kind == "bytes":
        return "AQI="
    return {"boolean": True, "string": "dflt", "float": 0.5, "double": 2.5}.get(
        kind, rng.choice((0, 7))
    )


def struct(rng: Random, depth: int = 2) -> dict[str, Any]:
    """The schema of a struct."""
    names = rng.sample(NAMES, rng.randrange(1, 6))
    inner = [{**schema(rng, depth), "field": name} for name in names]
    generated: dict[str, Any] = {"type": "struct", "optional": False, "fields": inner}
    if rng.random() < 0.4:
        generated |= {"name": "shop.Order", "version": rng.choice((1, 3))}
    return generated


def payload(rng: Random, source: dict[str, Any]) -> Any:
    """A value of a schema."""
    is_nullable = source["optional"] or "default" in source
    if is_nullable and rng.random() < 0.2:
        return None
    name, kind = source.get("name") or "", source["type"]
    if kind == "struct":
        return {field["field"]: payload(rng, field) for field in source["fields"]}
    if kind == "array":
        return [payload(rng, source["items"]) for _ in range(rng.randrange(3))]
    if kind == "map":
        keys = [rng.choice(NAMES) for _ in range(rng.randrange(3))]
        if source["keys"]["type"] == "string":
            return {key: payload(rng, source["values"]) for key in keys}
        return [[i, payload(rng, source["values"])] for i, _ in enumerate(keys)]
    if name in _LOGICAL:
        return _logical(rng, name, source)
    return _plain(rng, kind)


def _logical(rng: Random, name: str, source: dict[str, Any]) -> Any:
    if name.endswith("Decimal"):
        scale = int(source["parameters"]["scale"])
        digits = str(abs(integer(rng)) // rng.choice((1, 10**6, 10**12))).rjust(scale + 1, "0")
        point = len(digits) - scale
        sign = rng.choice(("", "-"))
        return {"$decimal": sign + digits[:point] + ("." + digits[point:] if scale else "")}
    if name.endswith("Date"):
        return {"$date": date(rng)}
    if name.endswith("Time"):
        return {"$time": rng.choice(("00:00:00", "07:51:30.888", "23:59:59.999", "12:00:00.010"))}
    return {"$timestamp": rng.choice((0, -1, 1684408953123, integer(rng) // 2**22, 86400000))}


def _plain(rng: Random, kind: str) -> Any:
    if kind in ("int8", "int16", "int32", "int64"):
        bits = int(kind[3:])
        return (integer(rng) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    if kind == "float":
        return rng.choice((0.5, 1.5, -2.25, 1e10, 0.0, 16777216.0, {"$float32": "NaN"}))
    if kind == "double":
        return rng.choice((double(rng), double(rng), {"$float64": "NaN"}))
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "bytes":
        return {"$bytes": base64.b64encode(rng.randbytes(rng.choice((0, 1, 4, 16)))).decode()}
    return text(rng)


def mutated(rng: Random, source: Any) -> Any:
    """A value without schema, changed in a place."""
    if isinstance(source, dict) and source and not next(iter(source)).startswith("$"):
        name = rng.choice(list(source))
        kind = rng.random()
        rest = {key: inner for key, inner in source.items() if key != name}
        if kind < 0.1:
            return rest
        if kind < 0.25:
            return {**rest, rng.choice(NAMES): source[name]}
        if kind < 0.35:
            return {**source, rng.choice(NAMES): value(rng, 1)}
        return {**source, name: mutated(rng, source[name])}
    if isinstance(source, list) and source and rng.random() < 0.8:
        at = rng.randrange(len(source))
        return [*source[:at], mutated(rng, source[at]), *source[at + 1 :]]
    if isinstance(source, str) and rng.random() < 0.3 and source:
        at = rng.randrange(len(source))
        return source[:at] + rng.choice(("", " ", "0", "-", "\u00e9", ".")) + source[at + 1 :]
    kind = rng.random()
    if kind < 0.1:
        return [source]
    if kind < 0.2:
        return {rng.choice(NAMES): source}
    return scalar(rng)

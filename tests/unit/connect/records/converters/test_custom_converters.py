"""Converters of users: the documented examples, and what goes wrong with others."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connect.config.connector import ConverterConfig
from connect.errors import ConfigError, IcefloeError, RecordError, RetriableError
from connect.model.records import ConnectSchema, Date, KafkaRecord, Struct, Timestamp
from connect.records.converters.column_converter import ColumnConverter
from connect.records.converters.converter import Converter
from connect.records.converters.converter_classes import converter, is_custom
from connect.records.converters.custom_converters import GROUP, custom_converter, installed
from connect.records.dead_letter import context_headers
from connect.records.record_path import ReferencePath
from connect.validation.plugins import BUILT_IN
from tests.differential.support import config
from tests.support.entry_points import install

INSTANT = pa.timestamp("us", "UTC")
PAGE = Path(__file__).parents[5] / "docs/reference/converters/custom.md"


def own(monkeypatch: pytest.MonkeyPatch, **members: Any) -> None:
    """A module ``own_converters`` with these members."""
    module = types.ModuleType("own_converters")
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, "own_converters", module)


def made(value: str, **options: str) -> Converter:
    """The converter of an entry point with this value."""
    return custom_converter(EntryPoint("Own", value, GROUP), options, "value")


def documented() -> dict[str, Any]:
    """All functions on the page."""
    members: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(code, members)
    return {n: m for n, m in members.items() if not n.startswith("__")}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget the packages that a test installs."""
    yield
    installed.cache_clear()


def installed_as(monkeypatch: pytest.MonkeyPatch, folder: Path, line: str) -> None:
    """Install a package with an entry point of the group."""
    install(monkeypatch, folder, GROUP, line)
    installed.cache_clear()


def convert(found: Converter, data: bytes | None) -> Any:
    return found.to_connect("t", (), data)


def test_the_documented_example_of_records_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function gets its options, bad records are refused, and null stays null."""
    own(monkeypatch, **documented())
    found = made("own_converters:separated", fields="id,name", separator=";")
    assert convert(found, b"1;Ann") == (None, {"id": "1", "name": "Ann"})
    assert convert(found, None) == (None, None)
    with pytest.raises(RecordError, match="Own raised ValueError") as refused:
        convert(found, b"secret")
    assert (refused.value.stage, refused.value.code) == ("VALUE_CONVERTER", "custom")
    with pytest.raises(ConfigError, match="rejects its options: 'fields'"):
        made("own_converters:separated")


def test_the_documented_example_of_columns_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record is a row with the declared schema; a bad one is refused."""
    own(monkeypatch, **documented())
    found = made("own_converters:fixed_width", width="4")
    schema, value = convert(found, b"   7Ann ")
    assert (schema.name, [name for name, _ in schema.fields]) == ("app.User", ["id", "name"])
    assert (value.schema, value.values) == (schema, {"id": 7, "name": "Ann"})
    assert convert(found, None) == (None, None)
    with pytest.raises(RecordError, match="Own raised ArrowInvalid") as refused:
        convert(found, b"secret")
    assert "secret" not in str(refused.value)


def test_the_documented_topics_are_a_valid_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each topic of the example on the page has its own converter."""
    own(monkeypatch, **documented())
    installed_as(
        monkeypatch,
        tmp_path,
        "Separated = own_converters:separated\nFixedWidth = own_converters:fixed_width",
    )
    (keys,) = (
        json.loads(text)
        for text in re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if "icefloe.topic." in text
    )
    path = ReferencePath(config(**keys))
    values = {
        topic: path.read(KafkaRecord(topic, 0, 0, None, -1, None, data))[0].value
        for topic, data in {
            "orders": b"1|2.50",
            "us-users": b"       7Ann",
        }.items()
    }
    assert values["orders"] == {"id": "1", "amount": "2.50"}
    assert values["us-users"].values == {"id": 7, "name": "Ann"}


SCHEMA = ConnectSchema("struct", fields=(("a", ConnectSchema("int64")),))


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        ({"secret"}, "custom"),
        ({1: "secret"}, "custom"),
        ([{"a": object()}], "custom"),
        (Struct(SCHEMA, {"b": "secret"}), "custom"),
        (Struct(ConnectSchema("string"), {}), "custom"),
        (cyclic(), "too_deep"),
    ],
)
def test_results_that_are_no_values_are_refused(
    monkeypatch: pytest.MonkeyPatch, returned: Any, code: str
) -> None:
    """The error has no values."""
    own(monkeypatch, odd=lambda _: lambda *_: returned)
    with pytest.raises(RecordError) as refused:
        convert(made("own_converters:odd"), b"x")
    assert (refused.value.stage, refused.value.code) == ("VALUE_CONVERTER", code)
    assert "secret" not in str(refused.value)


def test_values_and_structs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples become lists; a Struct has its schema."""
    day = dt.date(2024, 5, 1)
    results: list[Any] = [{"a": (1, [day]), "b": None}, Struct(SCHEMA, {"a": 1})]
    own(monkeypatch, own=lambda _: lambda data, _, __: results[int(data)])
    found = made("own_converters:own")
    assert convert(found, b"0") == (None, {"a": [1, [day]], "b": None})
    assert convert(found, b"1") == (SCHEMA, Struct(SCHEMA, {"a": 1}))


class LibraryError(Exception):
    """An exception of no common class, as libraries that read formats have."""


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KeyError("secret"), RecordError),
        (struct.error("secret"), RecordError),
        (LibraryError("secret"), RecordError),
        (ConnectionError("secret"), RetriableError),
        (TimeoutError("secret"), RetriableError),
    ],
)
@pytest.mark.parametrize("form", ["record", "columns"])
def test_any_exception_refuses_the_record_and_outages_are_retried(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[IcefloeError], form: str
) -> None:
    """The error has the exception's class, not its message."""

    def fail(*_: Any) -> Any:
        raise raised

    own(
        monkeypatch,
        record=lambda _: fail,
        columns=lambda _: ColumnConverter({"a": pa.int64()}, fail),
    )
    with pytest.raises(expected, match=type(raised).__name__) as caught:
        convert(made(f"own_converters:{form}"), b"x")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value.__cause__)


def test_the_function_gets_topic_headers_and_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options have no prefix."""
    own(
        monkeypatch,
        own=lambda options: lambda data, topic, headers: [options, data, topic, headers],
    )
    found = custom_converter(EntryPoint("Own", "own_converters:own", GROUP), {"x": "1"}, "key")
    _, value = found.to_connect("t", (("h", b"1"),), b"2")
    assert value == [{"converter.type": "key", "x": "1"}, b"2", "t", [["h", b"1"]]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("own_converters:missing", "cannot be loaded"),
        ("no_such_module:x", "cannot be loaded"),
        ("own_converters:nothing", "must return a function"),
        ("own_converters:no_fields", "declares no fields"),
        ("own_converters:lists", "cannot convert b to list"),
        ("own_converters:pattern", "rejects its options: missing \\)"),
        ("own_converters:no_file", "rejects its options: .*No such file"),
        ("broken_converters:x", "cannot be loaded: no license"),
    ],
)
def test_unusable_functions_are_errors_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, message: str
) -> None:
    """Each error names the converter, for exceptions of any class."""
    (tmp_path / "broken_converters.py").write_text("raise RuntimeError('no license')\n")
    monkeypatch.syspath_prepend(tmp_path)
    own(
        monkeypatch,
        pattern=lambda _: re.compile("("),
        no_file=lambda _: (tmp_path / "missing.avsc").read_text(),
        nothing=lambda _: None,
        no_fields=lambda _: ColumnConverter({}, lambda v: v),
        lists=lambda _: ColumnConverter({"b": pa.list_(pa.int64())}, lambda v: v),
    )
    with pytest.raises(ConfigError, match=f"converter Own.*{message}"):
        made(value)


TABLES: dict[str, Callable[[pa.Array], Any]] = {
    "a list, not a table": lambda values: values.to_pylist(),
    "2 rows for 1 rows": lambda _: pa.table({"a": [1, 2]}),
    "no column a of type int64": lambda _: pa.table({"a": ["secret"]}),
    "no column a": lambda _: pa.table({"b": [1]}),
    "no column a ": lambda _: pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]),
}


@pytest.mark.parametrize("message", TABLES)
def test_columns_that_are_not_as_declared_are_refused(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """The error has no values."""
    own(monkeypatch, own=lambda _: ColumnConverter({"a": pa.int64()}, TABLES[message]))
    with pytest.raises(RecordError, match=f"Own returned {message}") as refused:
        convert(made("own_converters:own"), b"x")
    assert "secret" not in str(refused.value)


def test_text_that_is_no_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function may have viewed bytes as text without a check."""
    own(
        monkeypatch,
        own=lambda _: ColumnConverter(
            {"a": pa.string()}, lambda values: pa.table({"a": values.view(pa.string())})
        ),
    )
    found = made("own_converters:own")
    assert convert(found, b"ok")[1].values == {"a": "ok"}
    with pytest.raises(RecordError, match="ArrowInvalid"):
        convert(found, b"\xff")


def test_columns_have_values_of_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instants keep microseconds, also before 1970."""
    columns = {"at": pa.array([-1], INSTANT), "day": pa.array([-2], pa.date32())}
    own(
        monkeypatch,
        own=lambda _: ColumnConverter(
            {name: column.type for name, column in columns.items()}, lambda _: pa.table(columns)
        ),
    )
    _, value = convert(made("own_converters:own"), b"x")
    assert value.values == {"at": Timestamp(-1, 999_000), "day": Date(-2)}


def test_installed_converters_are_found_by_their_name_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kafka's names stay Kafka's."""
    own(monkeypatch, own=lambda _: lambda *_: {"own": True})
    names = ("Own", "acme.Json", "Json", "org.apache.kafka.connect.json.JsonConverter")
    lines = "\n".join(f"{name} = own_converters:own" for name in names)
    installed_as(monkeypatch, tmp_path, lines)
    assert {name for name in (*names, "own", "OwnConverter") if is_custom(name)} == {
        "Own",
        "acme.Json",
    }
    for name in ("Own", "acme.Json"):
        assert convert(converter(ConverterConfig(name), "value"), b"{}") == (None, {"own": True})
    plain = {"schemas.enable": "false"}
    assert convert(converter(ConverterConfig("Json", plain), "value"), b"{}") == (None, {})
    with pytest.raises(ConfigError, match=r"unknown converter 'Other'.*Own"):
        converter(ConverterConfig("Other"), "value")
    assert BUILT_IN.find("Own") is None  # the plugins of this process were read before


def test_dead_letters_name_the_converter_of_the_topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Stage and class are in the headers, and the exception's message is not."""
    own(monkeypatch, own=lambda _: lambda *_: {}["secret"])
    installed_as(monkeypatch, tmp_path, "Own = own_converters:own")
    connector = config(**{"icefloe.topic.t.value.converter": "Own"})
    record = KafkaRecord("t", 0, 7, None, -1, None, b"x")
    with pytest.raises(RecordError) as refused:
        ReferencePath(connector).read(record)
    found = dict(context_headers(record, refused.value, connector, task_id=0))
    assert found["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert found["__connect.errors.class.name"] == b"Own"
    assert b"KeyError" in (found["__connect.errors.exception.message"] or b"")
    assert not any(b"secret" in (value or b"") for value in found.values())

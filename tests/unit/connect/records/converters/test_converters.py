"""Converters by name, their options and errors; the recordings hold the rest."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.connector import ConverterConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import Struct, Timestamp
from connect.records.converters import Converter, converter
from connect.records.converters.converter_classes import converter_names


def build(name: str, role: Any = "value", **options: str) -> Converter:
    """A converter with options; underscores stand for dots."""
    return converter(
        ConverterConfig(name, {k.replace("_", "."): v for k, v in options.items()}), role
    )


@pytest.mark.parametrize("name", converter_names())
def test_converters_have_long_and_short_names(name: str) -> None:
    """Class name, simple name and Kafka's aliases refer to the same converter."""
    short = name.rpartition(".")[2]
    options = {"schema_registry_url": "http://127.0.0.1:1"}  # those without one ignore it
    kinds = {type(build(n, **options)) for n in (name, short, short.removesuffix("Converter"))}
    assert len(kinds) == 1


def test_unknown_class_is_an_error() -> None:
    """The error of an unknown class lists the known classes."""
    with pytest.raises(ConfigError, match="JsonConverter"):
        build("com.example.MyConverter")


@pytest.mark.parametrize(
    ("role", "stage"),
    [("key", "KEY_CONVERTER"), ("value", "VALUE_CONVERTER"), ("header", "HEADER_CONVERTER")],
)
@pytest.mark.parametrize("data", [b"{", b'{"a":1}', b'{"schema":{"type":"int8"},"payload":300}'])
def test_errors_name_their_stage(role: str, stage: str, data: bytes) -> None:
    """The error contains the stage of the converter."""
    with pytest.raises(RecordError) as refused:
        build("json", role).to_connect("t", (), data)
    assert refused.value.stage == stage
    assert refused.value.code in ("bad_json", "bad_envelope", "out_of_range")


def envelope(payload: Any, **schema: Any) -> bytes:
    """An envelope around a payload."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def test_known_schemas_are_parsed_once() -> None:
    """Records with the same schema share its object."""
    json_converter = build("json")
    fields = [{"field": "a", "type": "int32"}]
    first = json_converter.to_connect("t", (), envelope({"a": 1}, type="struct", fields=fields))
    second = json_converter.to_connect("t", (), envelope({"a": 2}, type="struct", fields=fields))
    assert second[0] is first[0]
    assert second[1].values == {"a": 2}


def test_members_after_a_known_schema_are_checked() -> None:
    """Duplicate, unknown and missing members have the usual result."""
    json_converter = build("json")
    start = b'{"schema":{"type":"int32"},"payload":'
    assert json_converter.to_connect("t", (), start + b"5}")[1] == 5
    assert json_converter.to_connect("t", (), start + b" 5}")[1] == 5
    assert json_converter.to_connect("t", (), start + b'5,"payload":6 } ')[1] == 6
    schema, value = json_converter.to_connect(
        "t", (), start + b'5,"schema":{"type":"string"},"payload":"x"}'
    )
    assert schema is not None
    assert (schema.type, value) == ("string", "x")
    for end in (b"5", b'5,"more":1}', b"5}}", b"5} x", b"}"):
        with pytest.raises(RecordError):
            json_converter.to_connect("t", (), start + end)


_GAP = st.sampled_from(["", " ", "\x0b"])
_SCHEMA = st.sampled_from(['{"type":"int32"}', '{"type":"string","doc":"\\"payload\\":"}', "null"])
_PAYLOAD = st.sampled_from(["5", '"x"', "1.5", "tru", "", '"payload":7', "[[5"])
_END = st.sampled_from(["}", "} ", "}}", "", ',"x":1}'])
_RECORD = st.tuples(_GAP, _SCHEMA, _GAP, _PAYLOAD, _END, st.booleans())


@given(st.lists(_RECORD, max_size=12))
def test_a_cached_schema_does_not_change_the_value(records: list[Any]) -> None:
    """A converter with cached schemas returns and refuses the same as a new converter."""
    used = build("json")
    for before, schema, gap, payload, end, is_turned in records:
        members = [f'"schema":{schema}', f'"payload":{gap}{payload}']
        text = ",".join(members[::-1] if is_turned else members)
        data = f"{before}{{{text}{end}".encode()
        assert outcome(used, data) == outcome(build("json"), data)


def outcome(json_converter: Any, data: bytes) -> Any:
    """What a converter returns, or how it refuses."""
    try:
        return json_converter.to_connect("t", (), data)
    except RecordError as error:
        return error.code, error.message


def test_decimals_keep_their_digits() -> None:
    """A JSON number of a decimal keeps all its digits with any decimal.format."""
    text = "12345678901234567890123456789012345678.90"
    schema = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    raw = b'{"schema":' + json.dumps(schema).encode() + b',"payload":' + text.encode() + b"}"
    for form in ("NUMERIC", "base64"):
        assert build("json", decimal_format=form).to_connect("t", (), raw)[1] == Decimal(text)


def test_nested_structs_have_their_own_schemas() -> None:
    """Structs inside carry their own schemas, so that what follows needs nothing else."""
    inner = {
        "field": "i",
        "type": "struct",
        "fields": [
            {"field": "t", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
        ],
    }
    data = envelope({"i": {"t": 5}}, type="struct", fields=[inner])
    _, value = build("json").to_connect("t", (), data)
    assert isinstance(value.values["i"], Struct)
    assert value.values["i"].values == {"t": Timestamp(5)}


def test_schemas_are_bounded() -> None:
    """A schema with a thousand levels is an error and does not crash."""
    schema: dict[str, Any] = {"type": "int32"}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    raw = json.dumps({"schema": schema, "payload": []}).encode()
    with pytest.raises(RecordError) as refused:
        build("json").to_connect("t", (), raw)
    assert refused.value.code == "bad_envelope"


@pytest.mark.parametrize(
    "options",
    [
        {"schemas_enable": "maybe"},
        {"decimal_format": "HEX"},
        {"schema_content": "{"},
        {"schema_content": '{"type":"nothing"}'},
    ],
)
def test_bad_options_are_configuration_errors(options: dict[str, str]) -> None:
    """Invalid options are reported when the connector starts, not with its first record."""
    with pytest.raises(ConfigError):
        build("json", **options)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter",
            "AWS Glue Schema Registry is not supported",
        ),
        ("io.apicurio.registry.utils.converter.AvroConverter", "ccompat"),
    ],
)
def test_converters_of_other_registries_are_refused(name: str, says: str) -> None:
    """The error has the alternatives."""
    with pytest.raises(ConfigError, match=says) as refused:
        build(name)
    assert refused.value.code == "converter_class"


@given(st.binary(max_size=30))
def test_any_bytes_are_text(data: bytes) -> None:
    """StringConverter accepts any bytes."""
    schema, text = build("string").to_connect("t", (), data)
    assert schema is not None
    assert isinstance(text, str)
    assert text.encode("utf-8") or not data

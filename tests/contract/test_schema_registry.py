"""The registry client against a server of the API, and the Avro converter behind it."""

from __future__ import annotations

import base64
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.config.connector import ConverterConfig
from connect.errors import ConfigError, RecordError, RetriableError
from connect.gateways.schema_registry.registry_client import SchemaNotFound, SchemaRegistry
from connect.records.converters import converter
from tests.differential.support import config, plan, rows_of, run_batches, source
from tests.support.fakes.schema_registry import SchemaRegistryServer

AVRO = "io.confluent.connect.avro.AvroConverter"
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "shop.Customer"}],
}
CUSTOMER = {
    "type": "record",
    "name": "shop.Customer",
    "fields": [{"name": "name", "type": "string"}],
}
SIMPLE = {
    "type": "record",
    "name": "shop.Simple",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
SIMPLE_2 = {
    **SIMPLE,
    "fields": [*SIMPLE["fields"], {"name": "size", "type": "int", "default": 7}],  # type: ignore[misc] # a list
}


class RecordingClock(SystemClock):
    """A clock that notes what it is asked to wait."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    def sleep_ms(self, duration_ms: int) -> None:
        """Do not."""
        self.waits.append(duration_ms)


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def client(server: SchemaRegistryServer, **options: str) -> tuple[SchemaRegistry, RecordingClock]:
    clock = RecordingClock()
    given = {k.replace("_", "."): v for k, v in options.items()}
    return SchemaRegistry({"schema.registry.url": server.url, **given}, clock), clock


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def built(server: SchemaRegistryServer, **options: str) -> Any:
    given = {k.replace("_", "."): v for k, v in options.items()}
    all_options = {"schema.registry.url": server.url, "max.retries": "0", **given}
    return converter(ConverterConfig(AVRO, all_options), "value")


def test_a_schema_is_requested_once(server: SchemaRegistryServer) -> None:
    """Schemas never change under their id."""
    number = server.register("t-value", json.dumps(SIMPLE))
    registry, _ = client(server)
    assert registry.by_id(number) is registry.by_id(number)
    assert len(server.requests) == 1


def test_the_cache_is_bounded(server: SchemaRegistryServer) -> None:
    """The oldest schemas are requested again."""
    numbers = [
        server.register("t", json.dumps({"type": "fixed", "name": f"F{i}", "size": 1}))
        for i in range(4)
    ]
    registry, _ = client(server, schemas_cache_size="2")
    for number in [*numbers, *numbers]:
        registry.by_id(number)
    assert len(server.requests) == 8


def test_a_short_outage_is_retried(server: SchemaRegistryServer) -> None:
    """5xx, 429 and truncated answers, with growing pauses."""
    number = server.register("t-value", json.dumps(SIMPLE))
    registry, clock = client(server)
    server.faults.extend([503, 429, 500])
    assert registry.by_id(number).kind == "AVRO"
    assert clock.waits == [1000, 2000, 4000]


def test_a_long_outage_is_a_retriable_error(server: SchemaRegistryServer) -> None:
    """It is no error of the record; the message has the address without credentials."""
    registry, _ = client(server)
    server.faults.extend([503] * 4)
    with pytest.raises(RetriableError, match="answers 503") as raised:
        registry.by_id(1)
    assert raised.value.code == "registry_unavailable"


def test_a_closed_port_is_an_outage() -> None:
    """A refused connection is retried, then raises a RetriableError."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    clock = RecordingClock()
    url = f"http://user:secret@127.0.0.1:{port}"
    registry = SchemaRegistry({"schema.registry.url": url, "max.retries": "1"}, clock)
    with pytest.raises(RetriableError) as raised:
        registry.by_id(1)
    assert "secret" not in str(raised.value)
    assert clock.waits == [1000]


def test_addresses_are_tried_in_order(server: SchemaRegistryServer) -> None:
    """Addresses are tried in order."""
    number = server.register("t-value", json.dumps(SIMPLE))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    registry, clock = client(server, schema_registry_url=f"http://127.0.0.1:{port},{server.url}")
    assert registry.by_id(number).kind == "AVRO"
    assert not clock.waits


def test_an_unknown_id_is_an_error_of_the_record(server: SchemaRegistryServer) -> None:
    """40403 is cached for a while, so not every record sends a request."""
    registry, _ = client(server)
    for _ in range(3):
        with pytest.raises(SchemaNotFound, match="40403"):
            registry.by_id(99)
    assert len(server.requests) == 1
    with pytest.raises(SchemaNotFound, match="40401"):
        registry.version("unknown", None)
    server.register("t-value", json.dumps(SIMPLE))
    with pytest.raises(SchemaNotFound, match="40402"):
        registry.version("t-value", 9)


@pytest.mark.parametrize(
    "options",
    [
        {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "me:se:cret"},
        {"schema_registry_url": "http://me:se%3Acret@{}"},
    ],
)
def test_basic_authentication(server: SchemaRegistryServer, options: dict[str, str]) -> None:
    """User and password from their key or the address; a wrong one is a ConfigError."""
    number = server.register("t-value", json.dumps(SIMPLE))
    server.credentials = "Basic " + base64.b64encode(b"me:se:cret").decode()
    given = {k: v.format(f"127.0.0.1:{server.port}") for k, v in options.items()}
    assert client(server, **given)[0].by_id(number).kind == "AVRO"
    with pytest.raises(ConfigError, match="401") as raised:
        client(server)[0].by_id(number)
    assert raised.value.code == "registry_denied"


def test_bearer_tokens(server: SchemaRegistryServer) -> None:
    """A fixed token is sent with the cluster's headers."""
    number = server.register("t-value", json.dumps(SIMPLE))
    server.credentials = "Bearer abc"
    registry, _ = client(server, bearer_auth_token="abc", bearer_auth_logical_cluster="lsrc-1")
    registry.by_id(number)
    assert server.requests[-1][1]["target-sr-cluster"] == "lsrc-1"


def test_another_server_is_a_wrong_address(server: SchemaRegistryServer) -> None:
    """A 404 without the API's code is a ConfigError, not an error of the record."""
    registry, _ = client(server, schema_registry_url=server.url + "/other")
    with pytest.raises(ConfigError, match="is not a schema registry") as raised:
        registry.by_id(1)
    assert raised.value.code == "registry_address"


@pytest.mark.parametrize("form", ["id", "guid", "header id", "header guid"])
def test_both_paths_read_every_wire_form(
    server: SchemaRegistryServer, form: str, tmp_path: Path
) -> None:
    """Ids and GUIDs, before the datum or in a header."""
    number = server.register("t-value", json.dumps(SIMPLE))
    datum = avro(SIMPLE, {"id": 5, "name": "x"})
    head = b"\0" + number.to_bytes(4, "big")
    if "guid" in form:
        head = b"\1" + server.guid(number).bytes
    headers = (("__value_schema_id", head),) if "header" in form else ()
    _, value = built(server).to_connect("t", headers, datum if headers else head + datum)
    assert value.values == {"id": 5, "name": "x"}
    by_columns = _rows(server, tmp_path, [datum if headers else head + datum] * 50, headers)
    assert by_columns == [{"id": 5, "name": "x", "size": None}] * 50


def _rows(
    server: SchemaRegistryServer, folder: Path, values: list[bytes], headers: Any = ()
) -> list[dict[str, Any]]:
    import pyarrow as pa

    connector = config(
        **{
            "value.converter": AVRO,
            "value.converter.schemas.enable": None,
            "value.converter.schema.registry.url": server.url,
        }
    )
    table = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "size", LongType(), required=False),
    )
    batch = source(values)
    kind = batch.schema.field("headers").type
    listed = [[{"key": k, "value": v} for k, v in headers]] * len(values)
    batch = batch.set_column(
        batch.schema.get_field_index("headers"), "headers", pa.array(listed, kind)
    )
    result = run_batches(connector, [plan(folder, table)], [batch])
    assert result.error is None
    return rows_of(result, "db.t1")


def test_records_of_one_batch_may_have_several_schemas(
    server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """Records are read by the schema each was written with."""
    first = server.register("t-value", json.dumps(SIMPLE)).to_bytes(4, "big")
    second = server.register("t-value", json.dumps(SIMPLE_2)).to_bytes(4, "big")
    records = []
    for i in range(100):
        if i % 3:
            records.append(b"\0" + first + avro(SIMPLE, {"id": i, "name": None}))
        else:
            records.append(b"\0" + second + avro(SIMPLE_2, {"id": i, "name": "n", "size": i}))
    rows = sorted(_rows(server, tmp_path, records), key=lambda row: row["id"])
    expected = [
        {"id": i, "name": None if i % 3 else "n", "size": None if i % 3 else i} for i in range(100)
    ]
    assert rows == expected


def test_references_to_other_subjects_are_resolved(server: SchemaRegistryServer) -> None:
    """Names that other subjects define are found."""
    server.register("customer", json.dumps(CUSTOMER))
    references = [{"name": "shop.Customer", "subject": "customer", "version": 1}]
    number = server.register("t-value", json.dumps(ORDER), references=references)
    known = {**ORDER, "fields": [ORDER["fields"][0], {"name": "who", "type": CUSTOMER}]}  # type: ignore[index] # a list
    data = avro(known, {"id": 1, "who": {"name": "x"}})
    _, value = built(server).to_connect("t", (), b"\0" + number.to_bytes(4, "big") + data)
    assert value.values["who"].values == {"name": "x"}


def test_use_latest_version_reads_old_data_in_the_new_schema(server: SchemaRegistryServer) -> None:
    """Defaults are filled in."""
    number = server.register("t-value", json.dumps(SIMPLE))
    server.register("t-value", json.dumps(SIMPLE_2))
    data = b"\0" + number.to_bytes(4, "big") + avro(SIMPLE, {"id": 1, "name": None})
    reader = built(server, use_latest_version="true")
    assert reader.to_connect("t", (), data)[1].values == {"id": 1, "name": None, "size": 7}
    with pytest.raises(RecordError, match="40401"):
        reader.to_connect("other", (), data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "bad_framing"),
        (b"\0\0\0", "bad_framing"),
        (b'{"id":1}', "bad_framing"),
        (b"\0\0\0\0\x63\2", "unknown_schema"),
        (b"\0\0\0\0\1", "bad_avro"),
        (b"\0\0\0\0\1\2\0\0", "bad_avro"),
    ],
)
def test_invalid_messages_are_refused(server: SchemaRegistryServer, data: bytes, code: str) -> None:
    """Each with a code, at the stage of the value converter."""
    server.register("t-value", json.dumps(SIMPLE))
    with pytest.raises(RecordError) as raised:
        built(server).to_connect("t", (), data)
    assert (raised.value.code, raised.value.stage) == (code, "VALUE_CONVERTER")


def test_an_outage_fails_the_batch_and_makes_no_dead_letter(
    server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """Also with errors.tolerance all: the batch is retried."""
    connector = config(
        **{
            "value.converter": AVRO,
            "value.converter.schemas.enable": None,
            "value.converter.schema.registry.url": server.url,
            "value.converter.max.retries": "0",
            "errors.tolerance": "all",
        }
    )
    server.faults.extend([503] * 10)
    table = Schema(NestedField(1, "id", LongType(), required=False))
    result = run_batches(connector, [plan(tmp_path, table)], [source([b"\0\0\0\0\1\2\0"] * 50)])
    assert isinstance(result.error, RetriableError)
    assert not result.dead_letters
    assert not result.files

"""The translation of every option of ``icefloe ingest``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from connect.config.node.node_config import NodeConfig
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError, ExitStatus
from connect.node.ingest_run import continued_offsets, refuse_other_job
from connect.operations.ingest.ingest_options import (
    IngestJob,
    SourceOptions,
    TableOptions,
    ValueFormat,
)
from connect.operations.ingest.translation import (
    parse_pair,
    parse_seek_offsets,
    translate,
    with_start_offsets,
)
from connect.validation.parse import parse
from connect.validation.providers import Providers
from tests.support.command_line import icefloe
from tests.support.sources import ROOT


def job(
    environ: Mapping[str, str] | None = None,
    *,
    location: str = "/lake/web_requests",
    table: Mapping[str, Any] | None = None,
    **source: Any,
) -> IngestJob:
    """A job of a topic; its connector is valid."""
    given = environ or {}
    made = translate(
        SourceOptions("web_requests", **source), TableOptions(location, **(table or {})), given
    )
    node = NodeConfig.from_properties(made.node).properties
    providers = Providers(node, {**given, **made.secrets})
    parse(made.connector, node=node, resolve=providers.resolve)
    return made


def value_keys(found: IngestJob) -> dict[str, str]:
    """The keys of the value converter."""
    return {k: v for k, v in found.connector.items() if k.startswith("value.converter")}


def test_defaults_are_those_of_kafka_delta_ingest() -> None:
    """Brokers, app id, latency, file size, reset policy, metrics; no transformation."""
    found = job()
    connector, node = found.connector, found.node
    assert (found.name, node["bootstrap.servers"]) == ("kafka_delta_ingest", "localhost:9092")
    assert connector["iceberg.control.commit.interval-ms"] == "300000"
    target = "iceberg.tables.write-props.write.target-file-size-bytes"
    assert connector[target] == "134217728"
    assert connector["consumer.override.auto.offset.reset"] == "earliest"
    assert connector["iceberg.tables.timestamp-unit"] == "us"
    assert connector["errors.tolerance"] == "all"
    assert node["icefloe.statsd.address"] == "localhost:8125"
    assert node["icefloe.statsd.prefix"] == "kafka_delta_ingest"
    assert value_keys(found) == {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    assert not {"transforms", "icefloe.end", "icefloe.start.offsets"} & connector.keys()
    assert "config.providers" not in node
    assert (found.notes, found.secrets) == ([], {})


def test_options_of_source_and_table() -> None:
    """Each option reaches its key."""
    found = job(
        {"KDI_METRICS_PREFIX": "kdi"},
        app_id="web",
        brokers="b:1,c:2",
        auto_offset_reset="latest",
        seek_offsets={0: 123, 1: 4},
        is_bounded=True,
        table={"allowed_latency_s": 60, "min_bytes_per_file": 5, "statsd_endpoint": "s:9"},
    )
    connector, node = found.connector, found.node
    assert (connector["name"], connector["topics"]) == ("web", "web_requests")
    assert connector["iceberg.control.topic"] == "control-web"
    assert connector["iceberg.control.commit.interval-ms"] == "60000"
    assert connector["iceberg.tables.write-props.write.target-file-size-bytes"] == "5"
    assert connector["consumer.override.auto.offset.reset"] == "latest"
    assert json.loads(connector["icefloe.start.offsets"]) == {"web_requests": {"0": 124, "1": 5}}
    assert connector["icefloe.end"] == "latest"
    assert (node["bootstrap.servers"], node["icefloe.state.dir"]) == (
        "b:1,c:2",
        "icefloe-state/web",
    )
    assert (node["icefloe.statsd.address"], node["icefloe.statsd.prefix"]) == ("s:9", "kdi")
    assert (
        job(table={"allowed_latency_s": 0}).connector["iceberg.control.commit.interval-ms"]
        == "1000"
    )
    assert "icefloe.statsd.address" not in job(table={"statsd_endpoint": ""}).node


def test_transforms_are_expressions_or_fields_of_the_record() -> None:
    """As in the README; kafka.timestamp is in microseconds; a result of null sets nothing."""
    given = [
        "date: substr(meta.producer.timestamp, `0`, `10`)",
        "meta.kafka.offset:kafka.offset",
        "at : kafka.timestamp",
        "kind: kafka.timestamp_type",
    ]
    connector = job(table={"transforms": given}).connector
    assert {k: v for k, v in connector.items() if k.startswith("transforms")} == {
        "transforms": "ingest",
        "transforms.ingest.type": "icefloe.transforms.Jmespath",
        "transforms.ingest.set-null": "false",
        "transforms.ingest.fields.date": "substr(meta.producer.timestamp, `0`, `10`)",
        "transforms.ingest.fields.meta.kafka.offset": "kafka.offset",
        "transforms.ingest.fields.at": "epoch_millis_to_micro(kafka.timestamp)",
        "transforms.ingest.fields.kind": "kafka.timestamp_type",
    }
    with pytest.raises(ConfigError, match="PROPERTY: SOURCE"):
        job(table={"transforms": ["date"]})


def test_value_formats(tmp_path: Path) -> None:
    """JSON with and without registry, Avro by registry and by file, gzip; the rest is refused."""
    registry = {
        "SCHEMA_REGISTRY_USERNAME": "u",
        "SCHEMA_REGISTRY_PASSWORD": "p",
        "SCHEMA_REGISTRY_PROXY": "http://proxy:3128",
    }
    avro = value_keys(job(registry, value_format=ValueFormat(avro="http://r:8081/")))
    assert avro == {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r:8081",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "${env:SCHEMA_REGISTRY_USERNAME}:"
        "${env:SCHEMA_REGISTRY_PASSWORD}",
        "value.converter.proxy.host": "proxy",
        "value.converter.proxy.port": "3128",
    }
    by_registry = value_keys(job(value_format=ValueFormat(json="http://r:8081")))
    assert by_registry == {
        "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
        "value.converter.schema.registry.url": "http://r:8081",
    }
    for text in ("", "any text"):
        assert value_keys(job(value_format=ValueFormat(json=text))) == value_keys(job())
    packed = value_keys(job(value_format=ValueFormat(is_gzip=True)))
    assert packed["value.converter.payload.compression"] == "gzip"
    schema = tmp_path / "schema.avsc"
    schema.write_text('{"type": "record", "name": "r", "fields": []}')
    by_file = value_keys(job(value_format=ValueFormat(avro=str(schema))))
    assert by_file["value.converter.schema.file"] == str(schema)
    for bad in (ValueFormat(avro=""), ValueFormat(avro="gone.avsc"), ValueFormat("", "http://r")):
        with pytest.raises(ConfigError):
            job(value_format=bad)


def test_client_settings_and_the_variables_of_kafka_delta_ingest() -> None:
    """Logins hold for all clients; secrets are placeholders that the provider may read."""
    environ = {
        "KAFKA_DELTA_INGEST_CERT": "c",
        "KAFKA_DELTA_INGEST_KEY": "k",
        "KAFKA_DELTA_INGEST_CA": "a",
        "KAFKA_DELTA_INGEST_SCRAM_JSON": '{"username": "u", "password": "hidden"}',
    }
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "socket.keepalive.enable": "true",
        "fetch.message.max.bytes": "5",
        "group.id": "g",
        "auto.offset.reset": "latest",
    }
    found = job(environ, settings=settings)
    node = found.node
    assert node["ssl.certificate.pem"] == "${env:KAFKA_DELTA_INGEST_CERT}"
    assert node["ssl.key.pem"] == "${env:KAFKA_DELTA_INGEST_KEY}"
    assert node["ssl.ca.pem"] == "${env:KAFKA_DELTA_INGEST_CA}"
    assert (node["sasl.username"], node["security.protocol"]) == ("u", "SASL_SSL")
    assert node["sasl.password"] == "${env:ICEFLOE_INGEST_SASL_PASSWORD}"
    assert found.secrets == {"ICEFLOE_INGEST_SASL_PASSWORD": "hidden"}
    assert "hidden" not in str((node, found.connector))
    roles = ("consumer", "producer", "admin")
    assert {node[f"{role}.socket.keepalive.enable"] for role in roles} == {"true"}
    assert node["consumer.max.partition.fetch.bytes"] == "5"
    assert found.connector["consumer.override.auto.offset.reset"] == "latest"
    assert found.notes == [
        "-K group.id has no effect: source offsets are in the group connect-<app_id>"
    ]
    resolved = Providers(node, {**environ, **found.secrets}).resolve_all(node)
    assert (resolved["sasl.password"], resolved["ssl.key.pem"]) == ("hidden", "k")
    with pytest.raises(ConfigError) as refused:
        job({"KAFKA_DELTA_INGEST_SCRAM_JSON": '{"password": "hidden"}'})
    assert "hidden" not in str(refused.value)


def test_locations_of_delta_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative folders, S3 and Azure with the variables of their clients, and dead letters."""
    monkeypatch.chdir(tmp_path)
    local = job(location="./data/web-requests", table={"dead_letter_location": "letters"})
    assert local.table == local.connector["iceberg.tables"] == "ingest.web_requests"
    assert local.connector["icefloe.format"] == "delta"
    place = local.connector["iceberg.table.ingest.web_requests.location"]
    assert place == str(tmp_path / "data/web-requests") == local.connector["icefloe.delta.location"]
    assert local.connector["errors.deadletterqueue.table"] == "dead_letters.letters"
    letters = local.connector["iceberg.table.dead_letters.letters.location"]
    assert letters == str(tmp_path / "letters")

    aws = {
        "AWS_ENDPOINT_URL": "http://s3:4566",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    assert not any("s3." in key for key in job(aws).connector)
    s3 = job(aws, location="s3://lake/web/").connector
    assert s3["icefloe.delta.location"] == "s3://lake/web"
    keys = {k.removeprefix("iceberg.catalog."): v for k, v in s3.items() if "catalog.s3." in k}
    assert keys == {
        "s3.endpoint": "http://s3:4566",
        "s3.path-style-access": "true",
        "s3.region": "eu-central-1",
        "s3.access-key-id": "${env:AWS_ACCESS_KEY_ID}",
        "s3.secret-access-key": "${env:AWS_SECRET_ACCESS_KEY}",
    }
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    adls = job(azure, location="adls2://acc/lake/web").connector
    assert adls["icefloe.delta.location"] == "abfss://lake@acc.dfs.core.windows.net/web"
    assert adls["iceberg.catalog.adls.account-name"] == "acc"
    assert adls["iceberg.catalog.adls.account-key"] == "${env:AZURE_STORAGE_ACCOUNT_KEY}"
    with pytest.raises(ConfigError):
        job(location="adls2://acc/lake")


def test_an_iceberg_table_needs_a_catalog() -> None:
    """LOCATION is its name; keys of the connector replace those of the translation."""
    catalog = {
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://catalog",
        "iceberg.catalog.token": "hidden",
        "tasks.max": "4",
    }
    options = {"is_iceberg": True, "settings": catalog, "dead_letter_location": "web.letters"}
    found = job(location="web.requests", table=options)
    connector = found.connector
    assert (found.table, connector["iceberg.tables"]) == ("web.requests", "web.requests")
    assert connector["errors.deadletterqueue.table"] == "web.letters"
    assert "icefloe.format" not in connector
    assert connector["tasks.max"] == "4"
    assert connector["iceberg.catalog.token"] == "${env:ICEFLOE_INGEST_ICEBERG_CATALOG_TOKEN}"
    assert list(found.secrets.values()) == ["hidden"]


def test_pairs_and_offsets_are_checked() -> None:
    """A message never has a value."""
    assert parse_pair("a.b = c=d ", "=") == ("a.b", "c=d")
    for text in ("hidden", "=hidden"):
        with pytest.raises(ConfigError):
            parse_pair(text, "=")
    for text in ("[]", '{"a": 1}', "{"):
        with pytest.raises(ConfigError):
            parse_seek_offsets(text)


class StoredTransactions:
    """Transaction identifiers of a table, without its log."""

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = versions

    def load(self, identifier: tuple[str, ...]) -> StoredTransactions:
        """The table itself."""
        assert identifier == ("ingest", "web")
        return self

    def transaction(self, app_id: str) -> int | None:
        """Version of an identifier."""
        return self._versions.get(app_id)


def test_offsets_in_the_table_win_over_seek_offsets() -> None:
    """The stored offset is the last one in the table."""
    stored: Any = StoredTransactions({"web-0": 41, "other-1": 7})
    found = continued_offsets(stored, "ingest.web", "web", range(3))
    assert found == {0: 42}
    connector = {"topics": "t", "icefloe.start.offsets": '{"t":{"0":5,"1":6}}'}
    merged = with_start_offsets(connector, found)["icefloe.start.offsets"]
    assert json.loads(merged) == {"t": {"0": 42, "1": 6}}
    assert with_start_offsets(connector, {}) == connector


def test_an_app_id_keeps_topic_and_table() -> None:
    """Other options may change."""
    stored = job().connector
    refuse_other_job(job(is_bounded=True, brokers="b:1").connector, stored)
    refuse_other_job(stored, None)
    with pytest.raises(ConfigError, match="Set another --app_id"):
        refuse_other_job(job(location="/lake/other").connector, stored)


def test_the_command_prints_what_it_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's example, several values after one option, and variables of the environment."""
    monkeypatch.setenv("KAFKA_BROKERS", "broker:9092")
    monkeypatch.setenv("ALLOWED_LATENCY", "60")
    monkeypatch.setenv("WRITE_CHECKPOINTS", "true")
    command = [
        *("ingest", "web_requests", "./tests/data/web_requests", "-a", "web_requests"),
        *("-t", "date: substr(meta.producer.timestamp, `0`, `10`)"),
        *("meta.kafka.offset: kafka.offset", "meta.kafka.topic: kafka.topic"),
        *("-K", "security.protocol=SASL_SSL", "sasl.password=a:hidden", "-m", "7"),
    ]
    printed = icefloe(*command, "--print", "connector")
    assert printed.status == ExitStatus.DONE
    made = json.loads(printed.stdout)
    config = made["config"]
    assert made["name"] == config["name"] == "web_requests"
    assert config["transforms.ingest.fields.meta.kafka.topic"] == "kafka.topic"
    assert config["iceberg.control.commit.interval-ms"] == "60000"
    assert "note: --max_messages_per_batch has no effect" in printed.stderr
    node = icefloe(*command, "--print", "node")
    properties = parse_properties(node.stdout)
    assert properties["bootstrap.servers"] == "broker:9092"
    assert properties["sasl.password"] == "${env:ICEFLOE_INGEST_SASL_PASSWORD}"
    assert "hidden" not in node.stdout + node.stderr + printed.stdout + printed.stderr

    monkeypatch.setenv("TRANSFORMS", "a: b\nc: d")
    by_variables = icefloe("ingest", "t", "/lake/t", "--print", "connector")
    config = json.loads(by_variables.stdout)["config"]
    assert config["transforms.ingest.fields.c"] == "d"


@pytest.mark.parametrize(
    "bad",
    [
        ("--soe-avro", "schema.avsc"),
        ("--dlq_transform", "date: x"),
        ("--avro", ""),
        ("-K", "no value"),
        ("--auto_offset_reset", "none"),
        ("--json", "", "--avro", "http://r"),
    ],
)
def test_what_is_not_supported_is_refused(bad: tuple[str, ...]) -> None:
    """With status 2."""
    done = icefloe("ingest", "t", "/lake/t", *bad, "--print", "connector")
    assert (done.status, done.stdout) == (ExitStatus.USAGE, "")


def test_variables_of_the_guide_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is configured by its environment alone is the same job."""
    guide = (ROOT / "docs/how-to/move-from-kafka-delta-ingest.md").read_text("utf-8")
    (row,) = (line for line in guide.splitlines() if line.startswith("| `KAFKA_TOPIC`"))
    options = {
        "KAFKA_TOPIC": ("web_requests",),
        "TABLE_LOCATION": ("/lake/web_requests",),
        "KAFKA_BROKERS": ("-k", "broker:9092"),
        "KAFKA_CONSUMER_GROUP": ("-g", "old"),
        "APP_ID": ("-a", "web"),
        "KAFKA_SEEK_OFFSETS": ("--seek_offsets", '{"0":123}'),
        "KAFKA_AUTO_OFFSET_RESET": ("-o", "latest"),
        "ALLOWED_LATENCY": ("-l", "61"),
        "MAX_MESSAGES_PER_BATCH": ("-m", "7"),
        "MIN_BYTES_PER_FILE": ("-b", "12345"),
        "DLQ_TABLE_LOCATION": ("--dlq_table_location", "/lake/letters"),
        "STATSD_ENDPOINT": ("-s", "metrics:8125"),
        "JSON_REGISTRY": ("--json", "http://registry:8081"),
        "AVRO_REGISTRY": ("--avro", "http://registry:8081"),
    }
    flags = {"WRITE_CHECKPOINTS": "-c", "ENDS_AT_LATEST_OFFSETS": "-e"}
    flags["DECOMPRESS_GZIP"] = "--decompress_gzip"
    assert set(re.findall(r"`(\w+)`", row)) == options.keys() | flags.keys()
    for other in ("AVRO_REGISTRY", "JSON_REGISTRY"):  # a job has one of them
        with monkeypatch.context() as environment:
            command = [text for name, texts in options.items() if name != other for text in texts]
            expected = icefloe("ingest", *command, *flags.values(), "--print", "connector")
            assert expected.status == ExitStatus.DONE, expected.stderr
            for name, texts in options.items():
                if name != other:
                    environment.setenv(name, texts[-1])
            for name in flags:
                environment.setenv(name, "true")
            printed = icefloe("ingest", "--print", "connector")
        assert printed == expected

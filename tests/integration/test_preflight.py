"""Validation against a real broker and real catalogs, through the API."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.log_levels import LogLevels
from connect.processes.child_process import free_port
from connect.validation.providers import Providers
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.object_stores import S3Proxy, started
from tests.support.stack import RestCatalog, Topics, unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka

VALIDATE = "/connector-plugins/IcebergSinkConnector/config/validate"
CANARY = "canary-of-preflight"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "at", TimestamptzType()),
)
CATALOG = "iceberg.catalog."
PATIENT = {"icefloe.validate.remote.ms": "50000"}  # what is there may answer late
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class ValidatedConnector:
    """The API of one node, and a connector nothing is wrong with."""

    def __init__(self, server: RestServer, herder: FakeHerder, good: Mapping[str, str]) -> None:
        self.server, self.herder, self.good = server, herder, dict(good)

    def errors(self, change: Mapping[str, str], query: str = "") -> dict[str, list[str]]:
        """Sentences by key; an empty text takes the key out."""
        config = {k: v for k, v in {**self.good, **change}.items() if v}
        answer = self.server.json("PUT", VALIDATE + query, config)
        assert answer.status == 200, answer.content
        assert CANARY not in answer.content.decode()
        body = answer.json()
        errors = {c["value"]["name"]: c["value"]["errors"] for c in body["configs"]}
        assert body["error_count"] == sum(map(len, errors.values()))
        return {name: sentences for name, sentences in errors.items() if sentences}

    def error(self, change: Mapping[str, str], key: str) -> str:
        """The only sentence, which is at this key."""
        found = self.errors(change)
        assert list(found) == [key], found
        (sentence,) = found[key]
        return str(sentence)


def node_properties(servers: str, folder: Path, **more: str) -> dict[str, str]:
    """Properties of a node on a broker."""
    return {
        "bootstrap.servers": servers,
        "group.id": "preflight",
        "config.storage.topic": "preflight-configs",
        "status.storage.topic": "preflight-status",
        "config.providers": "env",
        "config.providers.env.param.allowlist.pattern": "CATALOG_.*",
        "icefloe.state.dir": str(folder),
        **more,
    }


def api(
    properties: Mapping[str, str], environ: Mapping[str, str], herder: FakeHerder
) -> RestServer:
    """The API with these properties, over a herder in memory."""
    node = NodeConfig.from_properties(properties)
    levels = LogLevels(SystemClock())
    return RestServer(
        create_app(
            herder.handlers,
            NodeInfo("http://127.0.0.1:8083", node.group_id),
            levels,
            resolve=Providers(properties, environ).resolve,
            settings=ApiSettings.of(node),
        )
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SQLite catalog and a warehouse; one table is in it."""
    folder = tmp_path_factory.mktemp("preflight")
    catalog = open_catalog("iceberg", sqlite(folder))
    catalog.create(("db", "t"), SCHEMA)
    catalog.create(("db", "old"), SCHEMA, properties={"format-version": "1"})
    catalog.close()
    return folder


def sqlite(folder: Path) -> dict[str, str]:
    """Properties of the catalog."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }


@pytest.fixture
def checked(
    kafka_properties: dict[str, str], topics: Topics, place: Path, tmp_path: Path
) -> Iterator[ValidatedConnector]:
    """The API on the broker, and a connector of a topic that exists."""
    servers = kafka_properties["bootstrap.servers"]
    herder = FakeHerder(LogLevels(SystemClock()))
    environ = {"CATALOG_PASSWORD": CANARY, "CATALOG_URI": sqlite(place)["uri"]}
    good = {
        "name": unique_name("checked"),
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topics.create("orders"),
        "iceberg.control.topic": unique_name("control"),
        "iceberg.tables": "db.t",
        **{CATALOG + key: value for key, value in sqlite(place).items()},
    }
    with api(node_properties(servers, tmp_path, **PATIENT), environ, herder) as server:
        yield ValidatedConnector(server, herder, good)


def test_validation_of_a_valid_connector_creates_nothing(
    checked: ValidatedConnector, kafka_properties: dict[str, str]
) -> None:
    """No errors, no topic and no group."""
    letters = unique_name("letters")
    change = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        f"{CATALOG}uri": "${env:CATALOG_URI}",
    }
    assert checked.errors(change) == {}
    there = KafkaAdmin(kafka_properties).topics()
    assert letters not in there
    assert checked.good["iceberg.control.topic"] not in there


def test_topic_errors_are_reported(
    checked: ValidatedConnector, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Missing sources, topics that cannot be created, and a control topic that deletes events."""
    servers = kafka_properties["bootstrap.servers"]
    missing = unique_name("missing")
    messages = checked.error({"topics": f"{checked.good['topics']},{missing}"}, "topics")
    assert messages.startswith(f"Asked the brokers at {servers} (within 30 s) for topics")
    acl = f"(ACL Describe on Topic {missing})"
    assert messages.endswith(f"{missing} does not exist, or cannot be described {acl}")
    messages = checked.error({"topics": "", "topics.regex": f"{missing}.*"}, "topics.regex")
    assert "topics that can be described" in messages
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": missing}
    messages = checked.error(letters, "errors.deadletterqueue.topic.name")
    assert "it does not exist, and the broker refuses to create topic" in messages
    assert "eplication factor" in messages
    advised = "errors.deadletterqueue.topic.replication.factor"
    assert f"set {advised} to at most the number of brokers" in messages
    assert checked.errors({**letters, advised: "1"}) == {}  # the advice works
    compacted = topics.create("compacted")
    delete_topic(KafkaAdmin(kafka_properties), compacted)
    compacted = unique_name("compacted")
    KafkaAdmin(kafka_properties).ensure_topic(compacted, 1, {"cleanup.policy": "compact"})
    messages = checked.error({"iceberg.control.topic": compacted}, "iceberg.control.topic")
    assert "cleanup.policy is compact" in messages


def test_table_errors_are_reported(checked: ValidatedConnector) -> None:
    """Missing tables, unsupported formats, unsuitable columns and missing keys."""
    messages = checked.error({"iceberg.tables": "db.none"}, "iceberg.tables")
    assert messages.startswith("Asked the sql catalog at sqlite:///")
    assert "table db.none does not exist; create it, or set iceberg.tables.auto-create" in messages
    auto = {"iceberg.tables.auto-create-enabled": "true"}
    assert checked.errors({"iceberg.tables": "db.none", **auto}) == {}
    messages = checked.error({"iceberg.tables": "db.old"}, "iceberg.tables")
    assert "table db.old has format version 1; only versions 2 and 3 are supported" in messages
    upsert = {"iceberg.tables.upsert-mode-enabled": "true"}
    own = "iceberg.table.db.t.id-columns"
    assert checked.errors({**upsert, own: "id"}) == {}
    assert "is no top-level column" in checked.error({**upsert, own: "ident"}, own)
    common = "iceberg.tables.default-id-columns"
    refused = checked.error({**upsert, common: "ratio"}, common)
    assert "floating-point column, which Iceberg does not allow as a key" in refused
    assert checked.errors(upsert) == {}  # keys of JSON have fields
    for table in ({}, {"iceberg.tables": "db.none", **auto}):
        messages = checked.error({**upsert, **table, "key.converter": BYTES}, "iceberg.tables")
        assert "cannot be identified" in messages
    terms = "iceberg.table.db.t.partition-by"
    assert "the table has no column 'when'" in checked.error({terms: "day(when)"}, terms)
    assert "does not support double" in checked.error({terms: "bucket(ratio, 4)"}, terms)
    assert checked.errors({terms: "day(at)"}) == {}
    terms = "iceberg.table.db.t.sort-by"
    assert "the table has no column 'when'" in checked.error({terms: "when desc"}, terms)
    assert checked.errors({terms: "ratio desc"}) == {}
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.table": "db.old"}
    messages = checked.error(letters, "errors.deadletterqueue.table")
    assert "format version 1" in messages


def test_validation_creates_no_database(checked: ValidatedConnector, tmp_path: Path) -> None:
    """Neither a database nor a catalog's tables in one."""
    file = tmp_path / "new.db"
    change = {f"{CATALOG}uri": f"sqlite:///{file}"}
    assert "db.t does not exist" in checked.error(change, "iceberg.tables")
    assert checked.errors({**change, "iceberg.tables.auto-create-enabled": "true"}) == {}
    assert not file.exists()
    file.touch()
    assert "db.t does not exist" in checked.error(change, "iceberg.tables")
    assert file.stat().st_size == 0
    nowhere = {f"{CATALOG}uri": f"sqlite:///{tmp_path / 'no' / 'new.db'}"}
    assert "folder of the database" in checked.error(nowhere, f"{CATALOG}uri")


@pytest.mark.java
def test_a_rest_catalog_is_checked(checked: ValidatedConnector, rest_catalog: RestCatalog) -> None:
    """Tables, and its transaction over several tables."""
    catalog = open_catalog("iceberg", rest_catalog.properties)
    table = f"{unique_name('rest').replace('-', '_')}.t"
    catalog.create(table.split("."), SCHEMA)
    catalog.close()
    rest = {CATALOG + key: value for key, value in rest_catalog.properties.items()}
    assert checked.errors({**rest, "iceberg.tables": table}) == {}
    messages = checked.error({**rest, "iceberg.tables": "no.where"}, "iceberg.tables")
    assert messages.startswith(
        f"Asked the rest catalog at {rest_catalog.uri} (each request within 30 s"
    )


def test_an_address_that_is_no_catalog_is_named(checked: ValidatedConnector) -> None:
    """Another service answers there, with JSON, or with a page."""
    rest = {f"{CATALOG}type": "rest", f"{CATALOG}warehouse": ""}
    node = f"http://127.0.0.1:{checked.server.port}"
    for url in (node, f"{node}/ui"):
        text = checked.error({**rest, f"{CATALOG}uri": url}, f"{CATALOG}uri")
        assert "what answers at iceberg.catalog.uri is no Iceberg REST catalog" in text, url


@pytest.mark.java
def test_an_object_store_is_checked(checked: ValidatedConnector, tmp_path: Path) -> None:
    """A probe is written and deleted; refused keys and a missing bucket are errors."""
    with started(S3Proxy(tmp_path)) as store:
        given = {
            **sqlite(tmp_path),
            **store.properties,
            "warehouse": f"{store.warehouse}/preflight",
        }
        opened = open_catalog("iceberg", given)
        opened.create(("db", "t"), SCHEMA)
        opened.close()
        own = {CATALOG + key: value for key, value in given.items()}
        new = {"iceberg.tables": "db.new", "iceberg.tables.auto-create-enabled": "true"}
        for tables in ({}, new):
            assert checked.errors({**own, **tables}) == {}
        assert not list(tmp_path.rglob("icefloe-probe*"))
        wrong = {**own, f"{CATALOG}s3.secret-access-key": CANARY}
        text = checked.error({**wrong, **new}, f"{CATALOG}s3.endpoint")
        assert text.startswith("Wrote a probe object to the store of the tables (each request")
        assert "the store refuses the credentials" in text
        text = checked.error(wrong, f"{CATALOG}uri")  # the catalog's own file cannot be read
        assert "the object store of the catalog's files: the store refuses the credentials" in text
        keyless = {key: "" for key in own if key.endswith(("key-id", "access-key"))}
        text = checked.error({**own, **new, **keyless}, f"{CATALOG}s3.endpoint")
        assert "no keys are set; set iceberg.catalog.s3.access-key-id and" in text
        nowhere = {**own, **new, f"{CATALOG}warehouse": "s3://nothing/w"}
        assert "bucket" in checked.error(nowhere, f"{CATALOG}s3.endpoint")


AVRO = "io.confluent.connect.avro.AvroConverter"
REGISTRY = "value.converter.schema.registry.url"


def test_a_schema_registry_is_checked(checked: ValidatedConnector) -> None:
    """With the connector's login; a refused login is an error of the registry's key."""
    with SchemaRegistryServer() as registry:
        avro = {"value.converter": AVRO, REGISTRY: registry.url}
        assert checked.errors(avro) == {}
        secret = base64.b64encode(f"user:{CANARY}".encode()).decode()
        registry.credentials = f"Basic {secret}"
        messages = checked.error(avro, REGISTRY)
        note = f"Asked the schema registry at {registry.url} (each request within 30 s): "
        assert messages.startswith(f"{note}the schema registry {registry.url} answers 401")
        login = "value.converter.basic.auth.user.info"
        source = {"value.converter.basic.auth.credentials.source": "USER_INFO"}
        known = {**avro, **source, login: "user:${env:CATALOG_PASSWORD}"}
        assert checked.errors(known) == {}
        registry.credentials = "Basic other"
        assert "answers 401" in checked.error(known, REGISTRY)
        assert checked.errors(known, "?icefloe.remote=false") == {}
    assert "ConnectError" in checked.error(known, REGISTRY)


@pytest.fixture
def hasty(
    kafka_properties: dict[str, str], tmp_path: Path, checked: ValidatedConnector
) -> Iterator[ValidatedConnector]:
    """The same by an API that waits no longer than it does by default."""
    properties = node_properties(kafka_properties["bootstrap.servers"], tmp_path)
    with api(properties, {"CATALOG_PASSWORD": CANARY}, checked.herder) as server:
        yield ValidatedConnector(server, checked.herder, checked.good)


def test_a_service_that_does_not_answer_is_named(
    hasty: ValidatedConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """The error has the service, the request and the time, without any secret."""
    caplog.set_level(logging.DEBUG)
    closed = f"127.0.0.1:{free_port()}"
    rest = {f"{CATALOG}type": "rest", f"{CATALOG}token": CANARY, f"{CATALOG}warehouse": ""}
    for uri in (
        f"http://user:{CANARY}@{closed}",
        f"http://user:${{env:CATALOG_PASSWORD}}@{closed}",
    ):
        body = {**hasty.good, **rest, f"{CATALOG}uri": uri}
        answer = hasty.server.json("PUT", VALIDATE, {k: v for k, v in body.items() if v}).json()
        reported = {c["value"]["name"]: c["value"]["errors"] for c in answer["configs"]}
        (messages,) = reported[f"{CATALOG}uri"]  # the brokers, too, may be too late for it
        assert closed in messages
        assert "does not answer" in messages
        assert CANARY not in json.dumps([c["value"]["errors"] for c in answer["configs"]])
    kafka = {"iceberg.kafka.bootstrap.servers": closed}
    found = hasty.errors(kafka)
    assert {"topics", "name"} <= set(found)
    assert f"Asked the brokers at {closed} (within 3 s)" in found["topics"][0]
    silent = socket.create_server(("127.0.0.1", 0))
    uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
    found = hasty.errors({**rest, f"{CATALOG}token": "", f"{CATALOG}uri": uri})
    silent.close()
    assert uri in found[f"{CATALOG}uri"][0]
    postgres = {
        f"{CATALOG}uri": f"postgresql://user:{CANARY}@{closed}/db",
        f"{CATALOG}jdbc.password": CANARY,
    }
    config = {**hasty.good, **postgres}
    answer = hasty.server.json("PUT", VALIDATE, config).json()
    reported = {c["value"]["name"]: c["value"]["errors"] for c in answer["configs"]}
    assert reported[f"{CATALOG}uri"]
    assert CANARY not in json.dumps(reported)
    assert CANARY not in caplog.text


def test_creating_runs_no_remote_checks(checked: ValidatedConnector) -> None:
    """An outage does not prevent a create; a query parameter skips remote checks."""
    away = {f"{CATALOG}uri": f"sqlite:////nowhere/{unique_name('db')}"}
    assert checked.errors(away)
    assert checked.errors(away, "?icefloe.remote=false") == {}
    config = {**checked.good, **away}
    name = config["name"]
    assert (
        checked.server.json("POST", "/connectors", {"name": name, "config": config}).status == 201
    )
    assert checked.server.json("PUT", f"/connectors/{name}/config", config).status == 200


def test_a_node_property_disables_remote_checks(
    kafka_properties: dict[str, str], tmp_path: Path, checked: ValidatedConnector
) -> None:
    """`icefloe.validate.remote.ms=0`, also with the query parameter."""
    more = {"icefloe.validate.remote.ms": "0"}
    properties = node_properties(kafka_properties["bootstrap.servers"], tmp_path, **more)
    with api(properties, {}, checked.herder) as server:
        quick = ValidatedConnector(server, checked.herder, checked.good)
        assert quick.errors({"topics": "nowhere"}, "?icefloe.remote=true") == {}


def test_an_invalid_configuration_starts_no_remote_checks(checked: ValidatedConnector) -> None:
    """Nothing is asked while the configuration itself is wrong."""
    found = checked.errors({"topics": "nowhere-at-all", "tasks.max": "0"})
    assert list(found) == ["tasks.max"]


def test_a_consumer_group_of_another_connector_is_refused(checked: ValidatedConnector) -> None:
    """Also by a create."""
    config: dict[str, Any] = {**checked.good, "name": "first"}
    checked.herder.create("first", config)
    found = checked.errors({"iceberg.connect.group-id": "connect-first"})
    assert "connect-first belongs to connector first" in found["iceberg.connect.group-id"][0]
    assert checked.errors({"name": "first"}) == {}  # itself

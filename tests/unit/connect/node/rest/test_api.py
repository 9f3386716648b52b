"""The REST API over the herder in memory: what the recordings do not hold."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from connect.clock import SystemClock
from connect.node.node_requests import Health, NodeInfo, UnavailableError
from connect.node.rest.api_errors import ApiError, status_of
from connect.node.rest.app import create_app
from connect.node.rest.bodies import read_model
from connect.node.rest.http_middleware import BODY_BYTES_MAX, PathError, allowed_methods, clean_path
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.models import (
    ChangeOfOffsets,
    Configuration,
    CreateConnector,
    RebaseRequest,
    ResetRequest,
)
from connect.node.rest.plugins import warning_header
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer

CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
    "iceberg.catalog.token": "${env:TOKEN}",
}


@pytest.fixture
def herder() -> FakeHerder:
    """A herder of its own per test."""
    return FakeHerder(LogLevels(SystemClock()))


@pytest.fixture
def server(herder: FakeHerder) -> Iterator[RestServer]:
    """The API on a free port."""
    node = NodeInfo("http://127.0.0.1:8083", "cluster")
    app = create_app(
        herder.handlers,
        node,
        LogLevels(SystemClock()),
        resolve=lambda text: text.replace("${env:TOKEN}", "hunter2"),
    )
    with RestServer(app) as running:
        yield running


def test_a_connector_is_created_changed_and_deleted(server: RestServer) -> None:
    """Also read, paused and restarted."""
    created = server.json("POST", "/connectors", {"name": "orders", "config": CONFIG})
    assert created.status == 201
    assert created.headers["location"] == "http://127.0.0.1:8083/connectors/orders"
    assert server.json("GET", "/connectors/orders/config").json() == {**CONFIG, "name": "orders"}
    assert server.send("PUT", "/connectors/orders/pause").status == 202
    status = server.send("GET", "/connectors/orders/status").json()
    assert status["connector"]["state"] == "PAUSED"
    patched = server.json("PATCH", "/connectors/orders/config", {"tasks.max": "2"})
    assert patched.json()["config"]["tasks.max"] == "2"
    assert server.send("PUT", "/connectors/orders/resume").status == 202
    restarted = server.send("POST", "/connectors/orders/restart?includeTasks=true").json()
    assert [task["state"] for task in restarted["tasks"]] == ["RESTARTING", "RESTARTING"]
    assert server.send("DELETE", "/connectors/orders").status == 204
    assert server.send("GET", "/connectors").json() == []


def test_no_answer_contains_a_resolved_secret(server: RestServer) -> None:
    """Validation, creation and errors show the placeholder."""
    path = "/connector-plugins/IcebergSink/config/validate"
    body = {**CONFIG, "name": "orders", "errors.tolerance": "${env:TOKEN}"}
    replies = [
        server.json("PUT", path, body),
        server.json("POST", "/connectors", {"name": "orders", "config": body}),
        server.json("POST", "/connectors", {"name": "orders", "config": CONFIG}),
        server.send("GET", "/connectors/orders/tasks"),
    ]
    assert [reply.status for reply in replies] == [200, 400, 201, 200]
    assert not any(b"hunter2" in reply.content for reply in replies)


def test_warnings_are_headers_of_the_validate_answer(server: RestServer) -> None:
    """A key of a later sink is no error; the body is Kafka's; the creation succeeds."""
    config = {**CONFIG, "name": "orders", "iceberg.of-a-later-version": 'q"\u00e9'}
    reply = server.json("PUT", "/connector-plugins/IcebergSink/config/validate", config)
    assert (reply.status, reply.json()["error_count"]) == (200, 0)
    assert "iceberg.of-a-later-version" not in reply.content.decode()
    assert reply.headers["warning"].startswith(
        '299 - "iceberg.of-a-later-version has no effect: Unknown configuration'
    )
    assert server.json("POST", "/connectors", {"name": "orders", "config": config}).status == 201


def test_a_warning_is_one_line_of_ascii() -> None:
    """Quotes and other characters survive the header."""
    header = warning_header('key "a" has\r\nno effect: \u20ac')
    assert header == r'299 - "key \"a\" has  no effect: \\u20ac"'


def test_a_large_body_is_refused(server: RestServer) -> None:
    """With or without a length, above 1 MiB is 413; exactly 1 MiB is read."""
    headers = {"content-type": "application/json"}
    over = server.send("POST", "/connectors", b" " * (BODY_BYTES_MAX + 1), headers)
    assert (over.status, over.json()["error_code"]) == (413, 413)
    assert server.send("POST", "/connectors", b" " * BODY_BYTES_MAX, headers).status == 400
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    chunks = iter([b" " * 65536] * 17)
    connection.request("POST", "/connectors", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_deep_json_is_400(server: RestServer) -> None:
    """Nesting beyond the limit of the parser does not end the process."""
    body = b'{"config":' * 50_000
    reply = server.send("POST", "/connectors", body, {"content-type": "application/json"})
    assert reply.status == 400
    assert reply.json()["message"]


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (Configuration, {f"k{n}": [] for n in range(100_000)}),
        (CreateConnector, {"config": {f"k{n}": [] for n in range(100_000)}}),
        (CreateConnector, {f"k{n}": [] for n in range(100_000)}),
        (ChangeOfOffsets, {"offsets": [{f"k{n}": 0 for n in range(100_000)}]}),
        (ChangeOfOffsets, {"offsets": [[]] * 100_000}),
        (RebaseRequest, {"tables": [1] * 100_000}),
        (ResetRequest, {"reason": "r", "tables": [{}] * 100_000}),
    ],
)
def test_a_body_with_many_mistakes_has_few_errors(model: type[BaseModel], body: Any) -> None:
    """A hundred thousand errors would delay every other request."""
    with pytest.raises(ApiError) as refused:
        read_model(model, json.dumps(body).encode())
    assert refused.value.status_code == 400
    broken = refused.value.__context__
    assert not isinstance(broken, ValidationError) or broken.error_count() <= 2


def test_half_a_surrogate_pair_is_400(server: RestServer) -> None:
    """It could be stored, but no answer could contain it."""
    body = b'{"name":"a","config":{"x":"\\ud800"}}'
    reply = server.send("POST", "/connectors", body, {"content-type": "application/json"})
    assert (reply.status, reply.json()["error_code"]) == (400, 400)


def test_health_is_503_until_the_node_is_ready(server: RestServer, herder: FakeHerder) -> None:
    """The body has the same shape."""
    herder.health = Health("starting", "Worker is still starting up.")
    reply = server.send("GET", "/health")
    assert reply.status == 503
    assert reply.json() == {"status": "starting", "message": "Worker is still starting up."}
    assert status_of(UnavailableError("x")) == 503


def test_metrics_are_prometheus_text(server: RestServer) -> None:
    """With the content type that scrapers expect."""
    reply = server.send("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"icefloe_fake_total 1.0" in reply.content


def test_extensions_are_below_their_own_path(server: RestServer) -> None:
    """/icefloe/v1; unknown ones and connectors are 404."""
    server.json("POST", "/connectors", {"name": "orders", "config": CONFIG})
    assert server.send("GET", "/icefloe/v1/cluster").status == 200
    assert server.send("GET", "/icefloe/v1/connectors/orders/lag").json()["connector"] == "orders"
    assert server.send("GET", "/icefloe/v1/connectors/orders/nope").status == 404
    assert server.send("GET", "/icefloe/v1/connectors/zz/lag").json()["error_code"] == 404


def test_log_levels_reach_pythons_loggers(server: RestServer) -> None:
    """A level for a logger name of Kafka is set in this process."""
    name = "icefloe.test.levels"
    reply = server.json("PUT", f"/admin/loggers/{name}", {"level": "trace"})
    assert reply.json() == [name]
    assert logging.getLogger(name).level == 5
    assert server.send("GET", f"/admin/loggers/{name}").json()["level"] == "TRACE"
    logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize("scope", ["worker", "cluster"])
def test_a_long_name_makes_no_loggers(server: RestServer, scope: str) -> None:
    """Python would make one for each part of it: 230 MB for a path of 30 kB, in each process."""
    before = len(logging.root.manager.loggerDict)
    path = f"/admin/loggers/long{'.a' * 200}?scope={scope}"
    assert server.json("PUT", path, {"level": "INFO"}).status == 400
    assert len(logging.root.manager.loggerDict) < before + 100


def test_a_bug_is_500_without_details(
    server: RestServer, herder: FakeHerder, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns nothing of the inside."""
    herder.kafka_id = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]  # a bug
    with caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        reply = server.send("GET", "/")
    assert (reply.status, reply.json()["message"]) == (500, "Internal Server Error")


@given(st.text(alphabet="/.;%2Fabc\\\x00é ", max_size=12))
def test_cleaning_a_path_is_idempotent(path: str) -> None:
    """Nothing ambiguous is left."""
    try:
        clean = clean_path("/" + path)
    except PathError:
        return
    assert clean_path(clean) == clean
    assert clean == "/" or not clean.endswith("/")
    assert not {"", ".", ".."} & set(clean.split("/")[2:])


def test_allowed_methods_have_kafkas_order() -> None:
    """HEAD comes with GET; OPTIONS is always allowed."""
    assert allowed_methods({"PUT", "GET"}) == ("HEAD", "GET", "OPTIONS", "PUT")
    assert allowed_methods({"PUT"}) == ("OPTIONS", "PUT")

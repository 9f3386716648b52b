"""A secret is where its user put it, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pyiceberg.catalog import load_catalog

from connect.node.node_requests import View
from tests.e2e.conftest import CANARIES
from tests.support.running_stack import RunningStack
from tests.support.stack import RestCatalog, S3Server, unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]
FROM_ENVIRONMENT = "${env:ICEFLOE_CATALOG_CANARY}"
INLINE = "iceberg.catalog.credential"
FILE_BYTES_MAX = 10_000_000
VALIDATE = "/connector-plugins/IcebergSinkConnector/config/validate"


def test_secrets_are_only_in_the_configuration(
    running: RunningStack, rest_catalog: RestCatalog, s3_server: S3Server
) -> None:
    """Canaries of store, catalog and broker: success, a bad record, an unavailable catalog."""
    name, table = unique_name("secret"), "secrets.t"
    dead_letters = unique_name("secret-letters")
    catalog = load_catalog("rest", **rest_catalog.properties, **s3_server.properties)
    running.table(table, catalog, properties={"write.data.path": f"{s3_server.warehouse}/secrets"})
    topic = running.topic("secret")
    connection = {
        **{f"iceberg.catalog.{k}": v for k, v in rest_catalog.properties.items()},
        **{f"iceberg.catalog.{k}": v for k, v in s3_server.properties.items()},
        "iceberg.catalog.s3.secret-access-key": FROM_ENVIRONMENT,
        INLINE: f"client:{CANARIES['inline']}",
    }
    config = {**running.connector(topics=topic, iceberg__tables=table), **connection}
    config |= {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead_letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    running.produce(topic, {"id": 1, "name": "x"}, {"id": "bad"}, {"id": 2, "name": "y"})
    running.create(name, config)
    running.rows(table, 2, name, catalog)
    _nowhere(running, [name], topics=("control-iceberg", dead_letters))
    for snapshot in catalog.load_table(table).metadata.snapshots:
        _clean(str(snapshot), "snapshot")
    for file in rest_catalog.warehouse.rglob("*.json"):
        _clean(file.read_text(), str(file))
    failing = {
        **config,
        "errors.tolerance": "none",
        "iceberg.catalog.uri": f"http://user:{CANARIES['inline']}@127.0.0.1:1",
    }
    broken = [unique_name("secret-broken") for _ in range(3)]
    running.create(broken[0], failing)
    database = {
        **failing,
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"postgresql://user:{CANARIES['inline']}@127.0.0.1:1/db",
    }
    running.create(broken[1], database)
    running.create(
        broken[2],
        {**config, "iceberg.tables": "secrets.t", "iceberg.catalog.s3.endpoint": "http://[::1]:1"},
    )
    for path in broken[:2]:
        running.trace(path)
    answer = running.api.put(
        VALIDATE,
        json={**config, "name": name, "iceberg.control.commit.interval-ms": FROM_ENVIRONMENT},
    )
    assert answer.json()["error_count"]
    _clean(answer.text, "validate", "inline")
    _not_in_what_validate_asks(running, name, [{**config, **o} for o in ({}, failing, database)])
    running.wait_until(
        lambda: any(name in datagram for datagram in running.statsd) or None,
        lambda: "no metrics of the connector at statsd",
    )
    _clean("\n".join(running.statsd), "statsd")
    _nowhere(running, [name, *broken], topics=("control-iceberg", "icefloe-status", dead_letters))
    running.delete(name, *broken)


def _not_in_what_validate_asks(
    running: RunningStack, name: str, configs: list[dict[str, str]]
) -> None:
    """Errors of the broker and catalog checks contain no secret of the request."""
    for config in configs:
        wrong = {**config, "name": name, "topics": "not-there", "iceberg.tables": "not.there"}
        answer = running.api.put(VALIDATE, json=wrong)
        reported = [text for entry in answer.json()["configs"] for text in entry["value"]["errors"]]
        assert len(reported) >= 2, reported
        _clean("\n".join(reported), "sentences of validate")
        _clean(answer.text, "validate", "inline")  # what was sent is shown


def _nowhere(running: RunningStack, names: list[str], *, topics: tuple[str, ...]) -> None:
    _not_in_answers(running, names)
    _not_in_files(running)
    for process, arguments in running.processes():
        _clean("\0".join(arguments), f"arguments of {process.pid}")
    for topic in topics:
        for record in running.records(topic):
            _clean(repr((record.key(), record.value(), record.headers())), topic)
    for record in running.records("icefloe-configs"):
        _clean(repr((record.key(), record.value())), "configurations", "inline")


def _not_in_answers(running: RunningStack, names: list[str]) -> None:
    paths = ("/", "/connectors?expand=status", "/metrics", "/health", "/admin/loggers")
    for path in (*paths, "/icefloe/v1/cluster"):
        _clean(running.api.get(path).text, path)
    for name in names:
        for part in ("/status", "/topics", "/offsets"):
            _clean(running.api.get(f"/connectors/{name}{part}").text, part)
        for view in get_args(View):
            _clean(running.api.get(f"/icefloe/v1/connectors/{name}/{view}").text, view)
        for part in ("", "/config", "/tasks"):
            # configuration is answered as it was sent: what is inline stays, placeholders too
            _clean(running.api.get(f"/connectors/{name}{part}").text, part, "inline")


def _not_in_files(running: RunningStack) -> None:
    """Logs, and what the processes write for Spark; the user's own properties file may."""
    for file, text in running.logs().items():
        _clean(text, file)
    for file in (running.stack.state_dir / "node").rglob("*"):
        if file.is_file() and file.stat().st_size < FILE_BYTES_MAX:
            _clean(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:  # scratch files come and go
        return ""


def _clean(text: str, where: str, *allowed: str) -> None:
    for kind, canary in CANARIES.items():
        if kind not in allowed:
            assert canary not in text, f"{kind} in {where}: {text[:3000]}"

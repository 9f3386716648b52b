"""What catalogs and table owners may not do: choose code, choose stores, keep us waiting."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from connect.errors import CommitRefused, RetriableError
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.storage.object_store import storage_properties
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableFailed
from tests.support.stack import RestCatalog
from tests.support.table_harness import SCHEMA, TableHarness
from tests.support.tables import QuickClock, connector

MODULE = "icefloe_loud_module"
NAMING = ["write.py-location-provider.impl", "py-io-impl", "py-catalog-impl", "auth.impl"]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a class of an importable module; the test fails if the module is imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text("class Loud:\n    pass\n")
    monkeypatch.syspath_prepend(str(folder))
    yield f"{MODULE}.Loud"
    assert MODULE not in sys.modules


class CatalogServer:
    """An HTTP server with one answer per path; anything else hangs until it is closed."""

    def __init__(self) -> None:
        self.by_path: dict[str, Any] = {}
        self._closing = threading.Event()
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers.by_path.get(self.path.partition("?")[0])
                if answer is None:
                    answers._closing.wait()
                    return
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - http.server requires this name

            def log_message(self, *_args: Any) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.properties = {
            "type": "rest",
            "uri": f"http://127.0.0.1:{self._server.server_address[1]}",
            "rest.client.socket-timeout-ms": "2000",
        }

    def close(self) -> None:
        """End it and everything that hangs."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def answers() -> Iterator[CatalogServer]:
    """A catalog that says what the test wants."""
    server = CatalogServer()
    yield server
    server.close()


@pytest.mark.parametrize("named", NAMING)
def test_a_table_property_cannot_import_code(
    rest_catalog: RestCatalog, module: str, named: str
) -> None:
    """A property set by the owner of the table stops the table."""
    gateway = open_catalog("iceberg", rest_catalog.properties)
    table = gateway.create(("db", f"evil-{uuid4().hex[:8]}"), SCHEMA)
    commit = TableHarness(gateway, table).round(0)
    update = {"action": "set-properties", "updates": {named: module}}
    path = f"{rest_catalog.uri}/v1/namespaces/db/tables/{table.name()[-1]}"
    body = {"requirements": [], "updates": [update]}
    httpx.post(path, json=body, timeout=60).raise_for_status()
    config = connector("c", [".".join(table.name())])
    outcome = Committer(gateway, config, QuickClock()).commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("python_module_refused", False)
    with pytest.raises(CommitRefused):
        gateway.create(("db", "other"), SCHEMA, properties={named: module})
    gateway.close()


@pytest.mark.parametrize("named", NAMING)
def test_a_metadata_file_cannot_import_code(
    sql_catalog_properties: dict[str, str], module: str, named: str
) -> None:
    """Also if our own client reads the metadata file."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    table = gateway.create(("db", "t"), SCHEMA)
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    metadata["properties"][named] = module
    file.write_text(json.dumps(metadata))
    with pytest.raises(CommitRefused) as refused:
        gateway.load(table.name())
    assert refused.value.code == "python_module_refused"
    gateway.close()


@pytest.mark.parametrize("part", ["defaults", "overrides"])
@pytest.mark.parametrize("named", [*NAMING, "auth"])
def test_the_configuration_of_a_catalog_cannot_import_code(
    answers: CatalogServer, module: str, part: str, named: str
) -> None:
    """The answer to ``/v1/config`` is checked before it is used."""
    value: Any = {"type": "custom", "impl": module, "custom": {}} if named == "auth" else module
    answers.by_path["/v1/config"] = {"defaults": {}, "overrides": {}, part: {named: value}}
    with pytest.raises(CommitRefused) as refused:
        open_catalog("iceberg", answers.properties)
    assert refused.value.code == "python_module_refused"


def test_table_properties_do_not_choose_the_store(sql_catalog_properties: dict[str, str]) -> None:
    """The owner of a table cannot redirect our signed requests to another store."""
    properties = {**sql_catalog_properties, "s3.endpoint": "http://ours"}
    gateway = open_catalog("iceberg", properties)
    theirs = {"s3.endpoint": "http://theirs", "s3.proxy-uri": "http://theirs"}
    table = gateway.create(("db", "t"), SCHEMA, properties=theirs)
    for each in (table, gateway.load(table.name())):
        opened_with = storage_properties(each.io.properties)
        assert opened_with["s3.endpoint"] == "http://ours"
        assert "s3.proxy-uri" not in opened_with
    gateway.close()


@pytest.mark.parametrize(
    ("own", "vended", "is_refused"),
    [
        ({}, {}, True),
        ({}, {"s3.access-key-id": "k", "s3.secret-access-key": "s"}, False),
        ({"s3.access-key-id": "k", "s3.secret-access-key": "s"}, {}, False),
        ({"s3.remote-signing-enabled": "false"}, {}, False),
    ],
)
def test_a_catalog_with_remote_signing_only_is_refused(
    answers: CatalogServer, own: dict[str, str], vended: dict[str, str], is_refused: bool
) -> None:
    """When a table is loaded; the error says what to change."""
    answers.by_path["/v1/config"] = {"defaults": {}, "overrides": {}}
    location = "s3://bucket/db/t"
    metadata = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location
    )
    answers.by_path["/v1/namespaces/db/tables/t"] = {
        "metadata-location": f"{location}/metadata/1.json",
        "metadata": json.loads(metadata.model_dump_json()),
        "config": {"s3.remote-signing-enabled": "true", "s3.region": "us-east-1", **vended},
    }
    gateway = open_catalog("iceberg", {**answers.properties, **own})
    if is_refused:
        with pytest.raises(
            CommitRefused, match=r"remote signing.*s3\.remote-signing-enabled=false"
        ) as e:
            gateway.load(("db", "t"))
        assert e.value.code == "remote_signing_unsupported"
    else:
        assert gateway.load(("db", "t")).location() == location
    gateway.close()


def test_requests_to_a_silent_catalog_end(answers: CatalogServer) -> None:
    """The first request, and the request for a token before it."""
    soon = {"rest.client.socket-timeout-ms": "500"}
    for more in ({}, {"credential": "user:secret"}):
        with pytest.raises(RetriableError) as raised:
            open_catalog("iceberg", {**answers.properties, **soon, **more})
        assert raised.value.code == "catalog_unavailable"
        assert "secret" not in str(raised.value)
    answers.by_path["/v1/config"] = {"defaults": {}, "overrides": {}}
    gateway = open_catalog("iceberg", answers.properties)
    with pytest.raises(RetriableError):
        gateway.load(("db", "t"))
    gateway.close()


def test_only_storage_properties_are_sent_to_the_worker(rest_catalog: RestCatalog) -> None:
    """Tokens of the catalog are not sent."""
    secrets = {"token": "catalog-token", "s3.access-key-id": "key"}
    gateway = open_catalog("iceberg", {**rest_catalog.properties, **secrets})
    table = gateway.create(("db", f"s-{uuid4().hex[:8]}"), SCHEMA)
    properties = storage_properties(table.io.properties)
    assert properties["s3.access-key-id"] == "key"
    assert "catalog-token" not in properties.values()
    assert all(isinstance(v, str) for v in properties.values())
    gateway.close()

"""An Iceberg REST catalog in memory whose multi-table commit is atomic, unlike Iceberg's fixture.

``python -m tests.support.fakes.rest_catalog PORT WAREHOUSE LATENCY_MS`` runs one in a process of
its own.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

Key = tuple[str, str]
Answer = tuple[int, Any]
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/transactions/commit",
]


class MemoryCatalog:
    """Namespaces and tables of one warehouse; every commit takes the same lock.

    Args:
        warehouse: location of its tables.
        vend: returns properties of the store for each answer with a table.
    """

    def __init__(self, warehouse: str, vend: Callable[[], dict[str, str]] = dict) -> None:
        self.warehouse = warehouse
        self._vend = vend
        self.namespaces: set[str] = set()
        self.tables: dict[Key, TableMetadata] = {}
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Status and JSON of a request."""
        match [method, *(unquote(part) for part in path.strip("/").split("/")[1:])]:
            case ["GET", "config"]:
                return 200, {"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}
            case ["POST", "namespaces"]:
                [name] = json.loads(body)["namespace"]
                if name in self.namespaces:
                    return _error(409, "AlreadyExistsException")
                self.namespaces.add(name)
                return 200, {"namespace": [name], "properties": {}}
            case ["GET", "namespaces", name] if name in self.namespaces:
                return 200, {"namespace": [name], "properties": {}}
            case ["DELETE", "namespaces", name] if name in self.namespaces:
                self.namespaces.discard(name)
                return 204, None
            case ["POST", "namespaces", name, "tables"] if name in self.namespaces:
                return self._create(name, json.loads(body))
            case [_, "namespaces", name, "tables", table] if (name, table) in self.tables:
                return self._table(method, (name, table), body)
            case ["POST", "transactions", "commit"]:
                changes = json.loads(body)["table-changes"]
                answer = self._commit(
                    [CommitTableRequest.model_validate(change) for change in changes]
                )
                return answer or (204, None)
        return _error(404, "NoSuchTableException" if "tables" in path else "NoSuchNamespace")

    def _create(self, namespace: str, request: dict[str, Any]) -> Answer:
        key = (namespace, request["name"])
        if key in self.tables:
            return _error(409, "AlreadyExistsException")
        self.tables[key] = new_table_metadata(
            Schema.model_validate(request["schema"]),
            UNPARTITIONED_PARTITION_SPEC,
            UNSORTED_SORT_ORDER,
            f"{self.warehouse}/{namespace}/{request['name']}",
            request.get("properties") or {},
        )
        return 200, self._displayed(key)

    def _table(self, method: str, key: Key, body: bytes) -> Answer:
        if method == "DELETE":
            self.tables.pop(key, None)
            return 204, None
        if method == "POST":
            answer = self._commit([CommitTableRequest.model_validate_json(body)])
            if answer:
                return answer
        return 200, self._displayed(key)

    def _commit(self, requests: list[CommitTableRequest]) -> Answer | None:
        """All of them or none."""
        with self._lock:
            new: dict[Key, TableMetadata] = {}
            for request in requests:
                [namespace] = request.identifier.namespace.root
                key = (namespace, request.identifier.name)
                base = self.tables.get(key)
                if base is None:
                    return _error(404, "NoSuchTableException")
                try:
                    for requirement in request.requirements:
                        requirement.validate(base)
                    new[key] = update_table_metadata(base, request.updates)
                except (CommitFailedException, ValueError) as error:
                    return _error(409, "CommitFailedException", str(error))
            self.tables.update(new)
        return None

    def _displayed(self, key: Key) -> dict[str, Any]:
        metadata = self.tables[key]
        version = f"{metadata.last_updated_ms}-{metadata.current_snapshot_id}"
        return {
            "metadata-location": f"{metadata.location}/metadata/{version}.json",
            "metadata": json.loads(metadata.model_dump_json()),
            "config": self._vend(),
        }


def _error(status: int, kind: str, message: str = "") -> Answer:
    return status, {"error": {"message": message or kind, "type": kind, "code": status}}


class MemoryCatalogServer:
    """The catalog behind HTTP on the loopback interface.

    Args:
        warehouse: location of its tables.
        port: 0 takes a free one.
        latency_s: no answer comes earlier.
        vend: as ``MemoryCatalog``.
    """

    def __init__(
        self,
        warehouse: str,
        *,
        port: int = 0,
        latency_s: float = 0.0,
        vend: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.catalog = MemoryCatalog(warehouse, vend)
        catalog = self.catalog

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _answer(self) -> None:
                started = time.monotonic()
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = catalog.answer(self.command, urlsplit(self.path).path, body)
                text = b"" if content is None else json.dumps(content).encode()
                time.sleep(max(0.0, latency_s - (time.monotonic() - started)))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def properties(self) -> dict[str, str]:
        """Catalog properties as they follow ``iceberg.catalog.``."""
        uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {"type": "rest", "uri": uri, "warehouse": self.catalog.warehouse}

    def start(self) -> None:
        """Answer in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


if __name__ == "__main__":
    running = MemoryCatalogServer(
        sys.argv[2], port=int(sys.argv[1]), latency_s=int(sys.argv[3]) / 1000
    )
    running.start()

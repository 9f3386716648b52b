"""An Iceberg REST catalog in memory that takes little CPU, so that a benchmark measures its client.

``python -m tests.support.fakes.light_catalog PORT WAREHOUSE`` runs one in a process of its own. It
keeps the snapshots that branches and tags name, and checks the heads of branches only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import unquote

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

Answer = tuple[int, Any]
_HEAD_END = b"\r\n\r\n"


class LightCatalog:
    """Namespaces and tables.

    Args:
        warehouse: location of its tables.
    """

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._namespaces: set[str] = set()
        self._tables: dict[tuple[str, str], dict[str, Any]] = {}

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Status and content for a request."""
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")[1:]]
        match [method, *parts]:
            case ["GET", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["POST", "namespaces"]:
                [name] = json.loads(body)["namespace"]
                self._namespaces.add(name)
                return 200, {"namespace": [name], "properties": {}}
            case ["GET", "namespaces", name] if name in self._namespaces:
                return 200, {"namespace": [name], "properties": {}}
            case ["POST", "namespaces", name, "tables"] if name in self._namespaces:
                request = json.loads(body)
                self._tables[name, request["name"]] = self._new_table(name, request)
                return 200, self._table(name, request["name"])
            case ["GET", "namespaces", name, "tables", table] if (name, table) in self._tables:
                return 200, self._table(name, table)
            case ["POST", "namespaces", name, "tables", table] if (name, table) in self._tables:
                if not _is_applied(self._tables[name, table], json.loads(body)):
                    return 409, {"error": {"message": "conflict", "type": "Conflict", "code": 409}}
                return 200, self._table(name, table)
        return 404, {"error": {"message": path, "type": "NoSuchTableException", "code": 404}}

    def _new_table(self, namespace: str, request: dict[str, Any]) -> dict[str, Any]:
        metadata = new_table_metadata(
            Schema.model_validate(request["schema"]),
            UNPARTITIONED_PARTITION_SPEC,
            UNSORTED_SORT_ORDER,
            f"{self._warehouse}/{namespace}/{request['name']}",
            request.get("properties") or {},
        )
        made: dict[str, Any] = json.loads(metadata.model_dump_json())
        return made

    def _table(self, namespace: str, name: str) -> dict[str, Any]:
        metadata = self._tables[namespace, name]
        version = metadata["last-sequence-number"]
        place = f"{metadata['location']}/metadata/{version}.json"
        return {"metadata-location": place, "metadata": metadata, "config": {}}


def _is_applied(metadata: dict[str, Any], change: dict[str, Any]) -> bool:
    """Apply a change; return false if another snapshot is the head of a branch."""
    refs = metadata["refs"]
    for requirement in change["requirements"]:
        if requirement["type"] == "assert-ref-snapshot-id":
            head = refs.get(requirement["ref"], {}).get("snapshot-id")
            if head != requirement.get("snapshot-id"):
                return False
    for update in change["updates"]:
        match update.pop("action"):
            case "add-snapshot":
                snapshot = update["snapshot"]
                metadata["snapshots"].append(snapshot)
                metadata["last-sequence-number"] = snapshot["sequence-number"]
                metadata["last-updated-ms"] = snapshot["timestamp-ms"]
            case "set-snapshot-ref":
                name = update.pop("ref-name")
                refs[name] = update
                if name == "main":
                    metadata["current-snapshot-id"] = update["snapshot-id"]
            case "set-properties":
                metadata["properties"].update(update["updates"])
            case action:
                raise NotImplementedError(action)
    named = {ref["snapshot-id"] for ref in refs.values()}
    metadata["snapshots"] = [s for s in metadata["snapshots"] if s["snapshot-id"] in named]
    metadata["snapshot-log"] = [
        {"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]}
        for s in metadata["snapshots"][-1:]
    ]
    return True


class _Connection(asyncio.Protocol):
    """Answers the requests of one connection, one after the other."""

    def __init__(self, catalog: LightCatalog) -> None:
        self._catalog = catalog
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(_HEAD_END)) >= 0:
            first, *lines = self._received[:end].decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            size = int(headers.get("content-length", 0))
            if len(self._received) < end + len(_HEAD_END) + size:
                return
            start = end + len(_HEAD_END)
            body, self._received = (
                self._received[start : start + size],
                self._received[start + size :],
            )
            method, path, _ = first.split(" ")
            status, content = self._catalog.answer(method, path, body)
            text = json.dumps(content).encode()
            head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\n"
            self._transport.write(
                f"{head}Content-Length: {len(text)}{_HEAD_END.decode()}".encode() + text
            )


async def _serve(port: int, warehouse: str) -> None:
    catalog = LightCatalog(warehouse)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(catalog), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))

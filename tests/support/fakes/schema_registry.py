"""A schema registry with the part of Confluent's API that readers and writers use, in memory.

Answers, status codes and error codes are those the API's documentation states: 40401 subject, 40402
version, 40403 schema; ``schemaType`` is left out for Avro; equal schemas share an id; Protobuf
schemas are given as file descriptors for ``format=serialized``.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections import deque
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connect.gateways.schema_registry import registry_client
from connect.records.converters.protobuf.protobuf_schema import pool_of
from tests.support.fakes.rest_server import RestServer

_CONTENT = "application/vnd.schemaregistry.v1+json"


class SchemaRegistryServer(RestServer):
    """The registry behind a real HTTP server.

    Attributes:
        faults: statuses to answer next in place of the answer; ``0`` cuts the body short.
        requests: paths asked for, with their headers.
        credentials: the ``Authorization`` header to insist on.
        knows_formats: whether ``format=serialized`` is followed.
    """

    def __init__(self) -> None:
        self.faults: deque[int] = deque()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.credentials: str | None = None
        self.knows_formats = True
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        routes = [
            Route("/subjects/{subject:path}/versions", self._register, methods=["POST"]),
            Route("/subjects/{subject:path}/versions/{version}", self._version),
            Route("/schemas/ids/{id:int}", self._by_id),
            Route("/schemas/guids/{guid}", self._by_guid),
            # the part of Apicurio's own API that its converters read by
            Route("/apis/registry/v2/ids/{kind}/{id:int}", self._content),
            Route("/apis/registry/v2/ids/{kind}/{id:int}/references", self._no_references),
        ]
        super().__init__(Starlette(routes=routes))
        self.url = f"http://127.0.0.1:{self.port}"
        # the port may have been another registry's, whose schemas this process still knows
        registry_client._shared.cache_clear()

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Register as a serializer does; the id."""
        entry = {"schema": schema, "schemaType": kind, "references": references or []}
        schema_id = next((i for i, known in self._schemas.items() if known == entry), None)
        if schema_id is None:
            schema_id = len(self._schemas) + 1
            self._schemas[schema_id] = entry
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def guid(self, schema_id: int) -> uuid.UUID:
        """The GUID of a schema."""
        text = json.dumps(self._schemas[schema_id], sort_keys=True)
        return uuid.uuid5(uuid.NAMESPACE_OID, text)

    # -------------------------------------------------------------- answers

    def _refusal(self, request: Request) -> Response | None:
        self.requests.append((str(request.url.path), dict(request.headers)))
        if self.credentials and request.headers.get("authorization") != self.credentials:
            return _error(401, 40101, "Unauthorized")
        if self.faults:
            status = self.faults.popleft()
            if status == 0:
                return Response(b'{"schema": "', media_type=_CONTENT)
            return _error(status, status * 100 + 1, "fault")
        return None

    async def _register(self, request: Request) -> Response:
        body = await request.json()
        schema_id = self.register(
            request.path_params["subject"],
            body["schema"],
            body.get("schemaType", "AVRO"),
            body.get("references"),
        )
        return JSONResponse({"id": schema_id}, media_type=_CONTENT)

    async def _by_id(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        schema_id = request.path_params["id"]
        if schema_id not in self._schemas:
            return _error(404, 40403, f"Schema {schema_id} not found")
        return JSONResponse(self._answer(schema_id, request), media_type=_CONTENT)

    async def _content(self, request: Request) -> Response:
        entry = self._schemas.get(request.path_params["id"])
        if entry is None:
            return _error(404, 404, "No content with this id was found.")
        headers = {"x-registry-artifacttype": entry["schemaType"]}
        return Response(entry["schema"], media_type="application/json", headers=headers)

    async def _no_references(self, request: Request) -> Response:
        del request
        return JSONResponse([])

    async def _by_guid(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        guid = request.path_params["guid"]
        schema_id = next((i for i in self._schemas if str(self.guid(i)) == guid), None)
        if schema_id is None:
            return _error(404, 40403, f"Schema {guid} not found")
        return JSONResponse(self._answer(schema_id, request), media_type=_CONTENT)

    async def _version(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        subject, version = request.path_params["subject"], request.path_params["version"]
        versions = self._subjects.get(subject)
        if versions is None:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            return _error(404, 40402, f"Version {version} not found.")
        schema_id = versions[number - 1]
        answer = {"subject": subject, "version": number, "id": schema_id}
        answer |= self._answer(schema_id, request)
        return JSONResponse(answer, media_type=_CONTENT)

    def _answer(self, schema_id: int, request: Request) -> dict[str, Any]:
        entry = self._schemas[schema_id]
        answer: dict[str, Any] = {"schema": entry["schema"], "guid": str(self.guid(schema_id))}
        if entry["schemaType"] != "AVRO":
            answer["schemaType"] = entry["schemaType"]
        if entry["references"]:
            answer["references"] = entry["references"]
        wants = request.query_params.get("format") == "serialized" and self.knows_formats
        if wants and entry["schemaType"] == "PROTOBUF":
            answer["schema"] = base64.b64encode(self._descriptor(schema_id)).decode()
        return answer

    def _descriptor(self, schema_id: int) -> bytes:
        entry = self._schemas[schema_id]
        named = {
            r["name"]: self._schemas[self._subjects[r["subject"]][r["version"] - 1]]["schema"]
            for r in entry["references"]
        }
        _, file = pool_of(entry["schema"], named)
        data: bytes = file.serialized_pb
        return data


def _error(status: int, code: int, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, status, media_type=_CONTENT)

"""Client of a schema registry with Confluent's API.

Rules of this file:
- An outage is never a record error. A transient failure is a RetriableError after bounded
  back-off; an error of the configuration is a ConfigError. Only the answer that a schema does not
  exist (404 with code 40401, 40402 or 40403) is a record error.
- A schema never changes under its id, so it is cached without expiry. "Not found" and "latest" are
  cached for a bounded time. The cache is bounded in number and bytes.
- Answers are bounded in size and time. Messages never contain credentials.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from connect.clock import SystemClock
from connect.errors import ConfigError, RetriableError
from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import AnswerLimitError, answers_within, body_within
from connect.gateways.guarded_http import guarded_transport
from connect.gateways.schema_registry.registry_options import (
    addresses,
    number,
    proxy,
    tls,
    without_credentials,
)
from connect.gateways.schema_registry.registry_token import TokenSource
from connect.redaction.foreign_text import shown_answer

ANSWER_BYTES_MAX: Final = 8 * 2**20
ANSWER_S: Final = 60.0
REFERENCES_MAX: Final = 256
NOT_FOUND_KEPT_MS: Final = 10_000
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})
_CLIENTS_KEPT: Final = 32

Answer = TypeVar("Answer")
KEPT_BYTES_MAX: Final = 64 * 2**20
_ENTRY_BYTES: Final = 1_000


class SchemaNotFound(LookupError):  # noqa: N818 - a result about a schema id
    """The registry has answered that a schema does not exist; the message names the schema."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema reference: ``name`` is the name that the referring schema uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry holds it.

    Attributes:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: the schema.
        references: the schemas it refers to.
        id: its id, if the response contains it.
        version: its version within the subject, if the response contains it.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


class SchemaRegistry:
    """A client of one registry, with a cache; thread-safe.

    Args:
        options: of a converter.
        clock: for back-off and cache expiry.
        answer_s: of a request, in addition to the limit between two bytes.

    Raises:
        ConfigError: an address, credential or certificate is invalid.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        clock: SystemClock | None = None,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._clock = clock or SystemClock()
        self._urls, auth = addresses(options)
        self._token = TokenSource.of(options)
        self._retries = number(options, "max.retries", 3, 0, 100)
        self._wait_ms = number(options, "retries.wait.ms", 1000, 1, 600_000)
        self._wait_max_ms = number(options, "retries.max.wait.ms", 20_000, 1, 600_000)
        self._latest_ms = number(options, "latest.cache.ttl.sec", 60, -1, 10**6) * 1000
        self._kept = RegistryCache(number(options, "schemas.cache.size", 1000, 1, 10**6))
        read_s = number(options, "http.read.timeout.ms", 60_000, 1, 3_600_000) / 1000
        self._answer_s = answer_s + read_s
        connect_s = number(options, "http.connect.timeout.ms", 10_000, 1, 3_600_000) / 1000
        limits = httpx.Limits(max_keepalive_connections=0)  # requests are rare
        self._client = httpx.Client(
            auth=auth,
            headers={
                "Accept": "application/vnd.schemaregistry.v1+json, application/json",
                "Accept-Encoding": "gzip",
            },
            timeout=httpx.Timeout(read_s, connect=connect_s),
            transport=guarded_transport(tls(options), proxy(options), limits),
            trust_env=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def by_id(self, schema_id: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id.

        Args:
            schema_id: from a record.
            serialized: request a Protobuf schema as a file descriptor; registries without this
                feature send the text.

        Raises:
            SchemaNotFound: there is no schema with this id.
            RetriableError, ConfigError: as ``ask``.
        """
        path = f"/schemas/ids/{schema_id}" + ("?format=serialized" if serialized else "")
        return self._kept_or(path, lambda: _schema(self.ask(path), schema_id), ttl_ms=None)

    def by_guid(self, guid: str, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with a GUID; otherwise like ``by_id``."""
        path = f"/schemas/guids/{guid}" + ("?format=serialized" if serialized else "")
        return self._kept_or(path, lambda: _schema(self.ask(path)), ttl_ms=None)

    def version(
        self, subject: str, version: int | None, *, serialized: bool = False
    ) -> RegisteredSchema:
        """Return a version of a subject, None for the latest; otherwise like ``by_id``."""
        version_name = "latest" if version is None else str(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{version_name}"
        path += "?format=serialized" if serialized else ""
        ttl_ms = None if version is not None or self._latest_ms < 0 else self._latest_ms
        return self._kept_or(path, lambda: _schema(self.ask(path)), ttl_ms=ttl_ms)

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema under a subject; return its id, an existing one if it is known.

        Raises:
            SchemaNotFound: the registry refuses the schema, for example as incompatible.
            RetriableError, ConfigError: as ``ask``.
        """
        answer = self.ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        schema_id = answer.get("id") if isinstance(answer, dict) else None
        if type(schema_id) is not int:
            raise RetriableError(
                "the schema registry's answer contains no id", code="registry_unavailable"
            )
        return schema_id

    def referenced(
        self, schema: RegisteredSchema, *, serialized: bool = False
    ) -> dict[str, RegisteredSchema]:
        """Return all direct and transitive references of a schema, by reference name.

        Returns:
            Schemas in dependency order: a schema comes after its own references.

        Raises:
            SchemaNotFound: a referenced schema does not exist, or there are too many.
        """
        schemas: dict[str, RegisteredSchema] = {}
        requests = 0

        def visit(of: RegisteredSchema, open_names: tuple[str, ...]) -> None:
            nonlocal requests
            for reference in of.references:
                if reference.name in schemas or reference.name in open_names:
                    continue
                requests += 1
                if requests > REFERENCES_MAX or len(open_names) > 32:
                    raise SchemaNotFound(f"a schema has more than {REFERENCES_MAX} references")
                inner = self.version(reference.subject, reference.version, serialized=serialized)
                visit(inner, (*open_names, reference.name))
                schemas[reference.name] = inner

        visit(schema, ())
        return schemas

    def _kept_or(self, key: str, ask: Callable[[], Answer], *, ttl_ms: int | None) -> Answer:
        now_ms = self._clock.monotonic_ms()
        kept: Any = self._kept.get(key, now_ms)
        if isinstance(kept, SchemaNotFound):
            raise SchemaNotFound(*kept.args)
        if kept is not None:
            answer: Answer = kept
            return answer
        try:
            answer = ask()
        except SchemaNotFound as missing:
            kept = SchemaNotFound(*missing.args)
            self._kept.put(key, now_ms + NOT_FOUND_KEPT_MS, kept, len(str(kept)))
            raise
        size = len(answer.text) if isinstance(answer, RegisteredSchema) else 0
        self._kept.put(key, None if ttl_ms is None else now_ms + ttl_ms, answer, size)
        return answer

    # -------------------------------------------------------------- requests

    def ask(self, path: str, body: Mapping[str, str] | None = None) -> Any:
        """GET or POST a path of the API at the first address that answers, with back-off.

        Raises:
            SchemaNotFound: the registry answers that the schema or subject does not exist.
            RetriableError: ``registry_unavailable``: no address answers.
            ConfigError: ``registry_denied`` or ``registry_address``.
        """
        wait_ms = self._wait_ms
        for attempt in range(self._retries + 1):
            problem = "no address"
            for url in self._urls:
                answer, problem = self._attempt(url, path, body)
                if answer is not None:
                    return answer[0]
            if attempt < self._retries:
                self._clock.sleep_ms(wait_ms)
                wait_ms = min(wait_ms * 2, self._wait_max_ms)
        raise RetriableError(
            f"the schema registry does not answer: {problem}", code="registry_unavailable"
        )

    def _attempt(
        self, url: str, path: str, body: Mapping[str, str] | None
    ) -> tuple[tuple[Any] | None, str]:
        """Send one request; return the answer in a tuple, or None and the transient problem."""
        displayed = without_credentials(url)
        access_policy().check_host(urlsplit(url).hostname or "")
        try:
            with answers_within(self._answer_s):
                headers = self._token.headers(self._client, self._clock) if self._token else {}
                status, content = self._send(url + path, headers, body)
        except (httpx.HTTPError, AnswerLimitError) as error:
            return None, f"{displayed}: {_problem_of(error)}"
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(
                f"a request to schema.registry.url {displayed} is not possible: "
                f"{type(error).__name__}",
                code="registry_address",
            ) from None
        if status in (408, 429) or status >= 500:
            return None, f"{displayed} answers {status}"
        if status in (401, 403):
            if self._token:
                self._token.forget()
            raise ConfigError(
                f"the schema registry {displayed} answers {status}: check basic.auth.user.info or "
                "bearer.auth.token of the converter, and its rights",
                code="registry_denied",
            )
        if status == 200:
            try:
                return (json.loads(content),), ""
            except (ValueError, RecursionError):
                raise _no_registry(displayed, "its answer is not JSON") from None
        code, message = _refusal(content)
        if status == 404 and code in _NOT_FOUND:
            raise SchemaNotFound(f"{path.partition('?')[0]}: {shown_answer(message)} ({code})")
        if status in (400, 422) and code:
            raise SchemaNotFound(
                f"{path.partition('?')[0]} is refused: {shown_answer(message)} ({code})"
            )
        raise _no_registry(displayed, f"{path.partition('?')[0]} answers {status}")

    def _send(
        self, url: str, headers: Mapping[str, str], body: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        method = "GET" if body is None else "POST"
        with self._client.stream(method, url, headers=dict(headers), json=body) as response:
            return response.status_code, body_within(response, ANSWER_BYTES_MAX)


def _problem_of(error: httpx.HTTPError | AnswerLimitError) -> str:
    if isinstance(error, AnswerLimitError):
        return f"the answer of the registry or of its token endpoint is not read: {error.message}"
    return type(error).__name__


def _no_registry(displayed: str, why: str) -> ConfigError:
    return ConfigError(
        f"schema.registry.url {displayed} is not a schema registry with Confluent's API: {why}",
        code="registry_address",
    )


def _refusal(body: bytes) -> tuple[int, str]:
    try:
        answer = json.loads(body)
        return int(answer["error_code"]), str(answer.get("message", ""))[:300]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0, ""


def _schema(answer: Any, schema_id: int | None = None) -> RegisteredSchema:
    """Parse a response; an invalid one is an error of the registry, not of the record."""
    try:
        kind = answer.get("schemaType") or "AVRO"
        references = tuple(
            Reference(str(r["name"]), str(r["subject"]), int(r["version"]))
            for r in answer.get("references") or ()
        )
        text, reported, version = answer["schema"], answer.get("id"), answer.get("version")
    except (AttributeError, KeyError, TypeError, ValueError):
        text = None
    if type(text) is not str:
        raise RetriableError(
            "the schema registry's answer holds no schema", code="registry_unavailable"
        )
    return RegisteredSchema(
        kind,
        text,
        references,
        schema_id if schema_id is not None else (reported if type(reported) is int else None),
        version if type(version) is int else None,
    )


@lru_cache(maxsize=_CLIENTS_KEPT)
def _shared(options: tuple[tuple[str, str], ...]) -> SchemaRegistry:
    return SchemaRegistry(dict(options))


def schema_registry(options: Mapping[str, str]) -> SchemaRegistry:
    """Return the client for a converter's options; equal options share one client per process.

    Raises:
        ConfigError: as ``SchemaRegistry``.
    """
    return _shared(tuple(sorted(options.items())))


class RegistryCache:
    """The answers that were used last; thread-safe.

    Args:
        count_max: of answers.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[str, tuple[int | None, Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str, now_ms: int) -> Any:
        """Return an answer; None if it is not kept, or has expired."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None or (entry[0] is not None and entry[0] <= now_ms):
                return None
            self._kept.move_to_end(key)
            return entry[1]

    def put(self, key: str, until_ms: int | None, answer: Any, text_bytes: int) -> None:
        """Keep an answer.

        Args:
            key: of the request.
            until_ms: when it expires; None for never.
            answer: not None.
            text_bytes: size of its texts.
        """
        size = text_bytes + len(key) + _ENTRY_BYTES
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += size - (replaced[2] if replaced else 0)
            self._kept[key] = (until_ms, answer, size)
            while len(self._kept) > self._count_max or self._bytes > KEPT_BYTES_MAX:
                self._bytes -= self._kept.popitem(last=False)[1][2]

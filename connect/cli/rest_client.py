"""A client of a node's REST API, for the command line.

Rules of this file:
- Passwords and tokens come from files and environment variables, never from arguments: every user
  of the machine can list the arguments of a process.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import quote

import httpx
import typer
import yaml

from connect.clock import SystemClock
from connect.errors import ConfigError, ExitStatus, IcefloeError, RetriableError
from connect.gateways.public_trust import public_trust

TIMEOUT_S = 90.0
ELECTION_MS = 60_000
ELECTION_PAUSE_MS = 200
DEFAULT_URL = "http://127.0.0.1:8083"
PROFILES = Path("~/.config/icefloe/profiles.yaml")
_PROFILE_KEYS = frozenset(
    {"server", "token_file", "user", "password_file", "ca_file", "cert_file", "key_file"}
)

Url = Annotated[
    str,
    typer.Option(
        "--server", envvar="ICEFLOE_SERVER", help="URL of a node, or the name of a profile."
    ),
]


_SIGN_IN = "(sign in to {url} with ICEFLOE_TOKEN, ICEFLOE_USER and ICEFLOE_PASSWORD, or a profile)"
_WARNING = re.compile(r'299 - "(.*)"')
_NO_VERDICT = frozenset({401, 408, 429})
"""Refusals that say nothing about the request: not authenticated, too slow, too many requests."""


class RefusedError(IcefloeError):
    """The node answered with an HTTP error; the message is the node's.

    Attributes:
        status: of HTTP; 0 for an answer that is not a node's.
    """

    default_code = "refused"

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        is_verdict = 400 <= status < 500 and status not in _NO_VERDICT
        self.exit_status = ExitStatus.NO if is_verdict else ExitStatus.NOT_ASKED


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """Address of a node and the caller's credentials; never shown."""

    url: str
    auth: tuple[str, str] | None = None
    token: str | None = None
    ca_file: str | None = None
    cert: tuple[str, str] | None = None

    @classmethod
    def named(cls, server: str) -> Server:
        """An address, or a profile of ``ICEFLOE_PROFILES`` (``~/.config/icefloe/profiles.yaml``).

        ``ICEFLOE_TOKEN``, or ``ICEFLOE_USER`` and ``ICEFLOE_PASSWORD``, go before the profile's.

        Raises:
            ConfigError: no such profile, or one that cannot be used.
        """
        profile: Mapping[str, str] = {"server": server}
        if "://" not in server:
            profile = _profile(server)
        environment = os.environ
        user = environment.get("ICEFLOE_USER") or profile.get("user")
        password = environment.get("ICEFLOE_PASSWORD") or _content(profile, "password_file")
        certificate, key = profile.get("cert_file"), profile.get("key_file")
        return cls(
            profile["server"].rstrip("/"),
            (user, password) if user and password else None,
            environment.get("ICEFLOE_TOKEN") or _content(profile, "token_file"),
            environment.get("ICEFLOE_CA_FILE") or profile.get("ca_file"),
            (certificate, key) if certificate and key else None,
        )


class NodeClient:
    """Sends requests to one node.

    While the nodes elect a leader, a node answers 409 and does nothing. The request is then sent
    again, as other clients of Kafka Connect do, for up to ``ELECTION_MS``.

    Args:
        server: its address and the caller's credentials.
    """

    def __init__(self, server: Server, clock: SystemClock | None = None) -> None:
        self._url = server.url
        self._clock = clock or SystemClock()
        headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
        try:
            self._client = httpx.Client(
                base_url=server.url,
                auth=None if server.token else server.auth,
                headers=headers,
                verify=_trust(server),
                cert=server.cert,
                timeout=TIMEOUT_S,
            )
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, OSError) as e:
            raise ConfigError(
                f"no client for {server.url} (--server, ICEFLOE_SERVER): {e}", code="server"
            ) from e

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def ask(self, method: str, *path: str, json: object = None, **parameters: object) -> Any:
        """Send a request and return the JSON answer; None when the answer has no body.

        Args:
            method: of HTTP.
            path: parts of the path, not yet quoted.
            json: the body.
            parameters: of the query.

        Raises:
            RefusedError: the node answered with an error.
            ConfigError: the address is not a URL.
            RetriableError: ``node_unavailable``: no node answers at the address.
        """
        return self._read(self._send(method, path, json, parameters))

    def _send(
        self, method: str, path: Sequence[str], json: object, parameters: Mapping[str, object]
    ) -> httpx.Response:
        url = "/" + "/".join(quote(part, safe="") for part in path)
        query = cast("dict[str, str]", parameters) or None
        deadline_ms = self._clock.monotonic_ms() + ELECTION_MS
        while True:
            answer = self._send_once(method, url, json, query)
            if not _is_election(answer) or self._clock.monotonic_ms() > deadline_ms:
                return answer
            self._clock.sleep_ms(ELECTION_PAUSE_MS)

    def _send_once(
        self, method: str, url: str, json: object, query: Mapping[str, str] | None
    ) -> httpx.Response:
        try:
            return self._client.request(method, url, json=json, params=query)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as e:
            raise ConfigError(
                f"{self._url} (--server, ICEFLOE_SERVER) is no URL of a node: {e}", code="server"
            ) from e
        except httpx.TransportError as e:
            raise RetriableError(
                f"no node answers at {self._url} (--server, ICEFLOE_SERVER): {e}",
                code="node_unavailable",
            ) from e

    def ask_with_warnings(
        self, method: str, *path: str, json: object = None, **parameters: object
    ) -> tuple[Any, list[str]]:
        """Send a request as ``ask``; return the answer and the texts of its ``Warning`` headers."""
        answer = self._send(method, path, json, parameters)
        matches = map(_WARNING.fullmatch, answer.headers.get_list("warning"))
        texts = [re.sub(r"\\(.)", r"\1", match[1]) for match in matches if match is not None]
        return self._read(answer), texts

    def _read(self, answer: httpx.Response) -> Any:
        is_bad = answer.status_code >= httpx.codes.BAD_REQUEST
        if not answer.content and not is_bad:
            return None
        try:
            body = answer.json()
        except ValueError:
            raise RefusedError(
                f"{self._url} answered HTTP {answer.status_code} without JSON: it is not a node, "
                "check --server",
            ) from None
        if is_bad:
            message = body.get("message") if isinstance(body, dict) else None
            text = str(message or f"HTTP {answer.status_code}")
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                text += f" {_SIGN_IN.format(url=self._url)}"
            raise RefusedError(text, status=answer.status_code)
        return body


def _is_election(answer: httpx.Response) -> bool:
    """Whether the node has refused a request because the cluster has no leader now."""
    return answer.status_code == httpx.codes.CONFLICT and "rebalance" in answer.text


def ask(url: str, method: str, connector: str, *path: str, json: object = None) -> dict[str, Any]:
    """Request ``/icefloe/v1/connectors/<connector>/<path>`` and return the JSON object.

    Raises:
        RefusedError, ConfigError, RetriableError: as ``NodeClient.ask``.
    """
    client = NodeClient(Server.named(url))
    try:
        body = client.ask(method, "icefloe", "v1", "connectors", connector, *path, json=json)
    finally:
        client.close()
    if not isinstance(body, dict):
        raise RefusedError(f"{url} answered without a JSON object: it is not a node")
    return body


def ask_about_file(url: str, connector: str, *path: str, json: object) -> dict[str, Any]:
    """Send a connector's file to a node, as ``ask``; a file that is wrong is wrong usage.

    Raises:
        ConfigError: the node finds the configuration wrong (HTTP 400), or as ``ask``.
        RefusedError, RetriableError: as ``ask``.
    """
    try:
        return ask(url, "POST", connector, *path, json=json)
    except RefusedError as e:
        if e.status == httpx.codes.BAD_REQUEST:
            raise ConfigError(e.message, code="refused") from e
        raise


def _trust(server: Server) -> ssl.SSLContext | str | bool:
    if server.ca_file or server.cert:  # the certificate is loaded into a context of its own
        return server.ca_file or True
    return public_trust(trust_env=True)


def _profile(name: str) -> Mapping[str, str]:
    file = Path(os.environ.get("ICEFLOE_PROFILES") or PROFILES).expanduser()
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except OSError:
        raise ConfigError(
            f"{name!r} is no URL (http://…), and there is no file of profiles {file}",
            code="profile",
        ) from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{file} is no YAML: {e}", code="profile") from e
    profiles = content if isinstance(content, dict) else {}
    profile = profiles.get(name)
    if not isinstance(profile, dict) or not isinstance(profile.get("server"), str):
        names = ", ".join(map(str, profiles)) or "none"
        raise ConfigError(
            f"{file} has no profile {name!r} with a server; it has: {names}", code="profile"
        )
    unknown = sorted(set(map(str, profile)) - _PROFILE_KEYS)
    if unknown:
        raise ConfigError(
            f"profile {name!r} in {file}: unknown key {unknown[0]!r}; there are "
            f"{', '.join(sorted(_PROFILE_KEYS))}",
            code="profile",
        )
    return {key: str(value) for key, value in profile.items()}


def _content(profile: Mapping[str, str], key: str) -> str | None:
    name = profile.get(key)
    if name is None:
        return None
    try:
        return Path(name).expanduser().read_text("utf-8").strip()
    except OSError as e:
        raise ConfigError(f"{key} of the profile cannot be read: {e}", code="profile") from e

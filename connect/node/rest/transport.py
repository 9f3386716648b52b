"""The HTTP server below the API: TLS, client certificates, slow clients.

Rules of this file:
- A connection is closed when its client does not finish a request's head in time, still sends a
  body after the answer, or does not read the answer.
- ``connections`` limits the number of connections.
- The common name of a client's certificate, checked by TLS, is in the ASGI scope.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.node.rest.access import CERTIFICATE
from connect.node.rest.connections import Connections

HEAD_S: Final = 10.0
ANSWER_S: Final = 30.0
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class GuardedProtocol(H11Protocol):
    """One connection."""

    open_connections = Connections()
    head_s = HEAD_S
    answer_s = ANSWER_S
    _reading_timer: asyncio.TimerHandle | None = None
    _writing_timer: asyncio.TimerHandle | None = None
    _number = -1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # the base narrows it, too
        """Take a connection."""
        super().connection_made(transport)
        name = common_name(transport.get_extra_info("ssl_object"))
        if name is not None:
            self.app = _with_certificate(self.app, name)
        self._number = transport.get_extra_info("socket").fileno()
        self._mark()
        self._reading_timer = self.loop.call_later(self.head_s, self._cut_off)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        _stop(self._reading_timer)
        self._reading_timer = None
        _stop(self._writing_timer)
        self._writing_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; limit the time of a head that is not complete.

        Bytes of a connection that was closed by a limit are not served. Otherwise one address with
        many requests at once could use up the limit of all callers.
        """
        if not self.open_connections.holds(self._number):
            self._cut_off()
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Limit the time of a body that still arrives after its answer."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Limit the time of a client that reads its answer too slowly."""
        super().pause_writing()
        if self._writing_timer is None:
            self._writing_timer = self.loop.call_later(self.answer_s, self._cut_off)

    def resume_writing(self) -> None:
        """Stop the time limit: the client has continued to read."""
        super().resume_writing()
        _stop(self._writing_timer)
        self._writing_timer = None

    def _watch(self) -> None:
        """Start or stop the time limit of a head, or of a body after its answer."""
        theirs = self.conn.their_state
        is_head_open = theirs is h11.IDLE and bool(self.conn.trailing_data[0])
        is_body_unwanted = theirs is h11.SEND_BODY and self._is_answered()
        if not (is_head_open or is_body_unwanted):
            _stop(self._reading_timer)
            self._reading_timer = None
        elif self._reading_timer is None:
            self._reading_timer = self.loop.call_later(self.head_s, self._cut_off)
        self._mark()

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _mark(self) -> None:
        self.open_connections.mark(self._number, is_idle=self._is_answered())

    def _cut_off(self) -> None:
        self.transport.abort()


def http_server(
    app: ASGIApp,
    connections: Connections,
    context: ssl.SSLContext | None = None,
    *,
    head_s: float = HEAD_S,
    answer_s: float = ANSWER_S,
) -> uvicorn.Server:
    """Return the HTTP server of an API.

    Args:
        app: the API.
        connections: the connections of its listener.
        context: its TLS.
        head_s: time limit of a request's head, and of a body after its answer.
        answer_s: time limit of a client that does not read its answer.
    """
    bounds = {"open_connections": connections, "head_s": head_s, "answer_s": answer_s}
    protocol = type("BoundedProtocol", (GuardedProtocol,), bounds)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            proxy_headers=False,  # any client could name any address as its own
            ssl_context_factory=None if context is None else lambda *_: context,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=3,
        )
    )


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def common_name(connection: Any) -> str | None:
    """Return the common name of the checked certificate of a TLS connection's client."""
    certificate = connection.getpeercert() if connection is not None else None
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


def tls(config: NodeConfig) -> ssl.SSLContext | None:
    """Return the listener's TLS; None when it uses plain HTTP.

    Raises:
        ConfigError: ``tls``, a file is missing or not valid.
    """
    if config.listener.scheme != "https":
        return None
    v = config.values
    name, key = "listeners.https.ssl.keystore.location", "listeners.https.ssl.key.password"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(v[name], password=v[key] or "")
        context.verify_mode = _CLIENT_AUTH[v["listeners.https.ssl.client.auth"]]
        name = "listeners.https.ssl.truststore.location"
        if v[name]:
            context.load_verify_locations(v[name])
    except (OSError, ssl.SSLError, TypeError) as e:
        raise ConfigError(
            f"{name}={v[name]} is not a PEM file of certificates (for the keystore, with their "
            f"key): {type(e).__name__}",
            code="tls",
        ) from None
    return context


def trust_of_peers(config: NodeConfig) -> ssl.SSLContext | None:
    """Return TLS towards other nodes, with mutual authentication if they request it.

    Returns:
        None when nodes use plain HTTP.
    """
    if config.listener.scheme != "https":
        return None
    v = config.values
    context = ssl.create_default_context(cafile=v["listeners.https.ssl.truststore.location"])
    key_password = v["listeners.https.ssl.key.password"] or ""
    context.load_cert_chain(v["listeners.https.ssl.keystore.location"], password=key_password)
    return context


def _with_certificate(app: ASGIApp, name: str) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CERTIFICATE: name}, receive, send)

    return serve

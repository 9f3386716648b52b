"""The HTTP server below the API: TLS, client certificates, slow and too many clients.

Rules of this file:
- A client that does not finish a request's head in time is cut off, so that slow ones cannot hold
  connections; how many there may be is bounded.
- The common name of a client's certificate travels in the ASGI scope, as TLS has checked it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from connect.config.node import NodeConfig
from connect.errors import ConfigError
from connect.rest.routes import CERTIFICATE

HEAD_S: Final = 10.0
CONNECTIONS_MAX: Final = 1_000
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class GuardedProtocol(H11Protocol):
    """One connection."""

    _count = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # the base narrows it, too
        """Take a connection, or refuse it when there are too many."""
        super().connection_made(transport)
        GuardedProtocol._count += 1
        if GuardedProtocol._count > CONNECTIONS_MAX:
            transport.abort()
            return
        name = common_name(transport.get_extra_info("ssl_object"))
        if name is not None:
            self.app = _with_certificate(self.app, name)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        GuardedProtocol._count -= 1
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came: watch a head that has begun, until it is whole."""
        super().data_received(data)
        is_head_open = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not is_head_open:
            self._stop_timer()
        elif self._head_timer is None:
            self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._cut_off)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cut_off(self) -> None:
        self.transport.abort()


def common_name(connection: Any) -> str | None:
    """Common name of the checked certificate of a TLS connection's client."""
    certificate = connection.getpeercert() if connection is not None else None
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


def tls(config: NodeConfig) -> ssl.SSLContext | None:
    """The listener's TLS; None when it is plain HTTP.

    Raises:
        ConfigError: ``tls``, a file is missing or does not hold what it should.
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
            f"{name}={v[name]}: no PEM file of certificates (and, for the keystore, their key): "
            f"{type(e).__name__}",
            code="tls",
        ) from None
    return context


def trust_of_peers(config: NodeConfig) -> ssl.SSLContext | None:
    """TLS towards other nodes: their certificates are checked, ours is shown to those that ask.

    Returns:
        None where nodes speak plain HTTP.
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

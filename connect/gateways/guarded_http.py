"""HTTP connections of catalogs and registries: to allowed hosts, without redirects, limited.

Rules of this file:
- The address of a connection is checked after it is open and before the first byte is sent: a name
  may have resolved to another address before.
- A redirect is an error: it could lead to a host that was not checked.
- Answers are limited in size and time (``answer_limits``).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx
from requests import PreparedRequest, RequestException, Response
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import (
    TOKEN_BYTES_MAX,
    LimitedBody,
    LimitedResponse,
    LimitedStream,
    left_s,
)
from connect.gateways.public_trust import public_trust


class RedirectError(RequestException):
    """The server answers with a redirect, which is not followed."""


class _Connection(HTTPConnection):
    response_class = LimitedResponse

    def _new_conn(self) -> Any:
        return checked_peer(super()._new_conn(), self.host)


class _SecureConnection(HTTPSConnection):
    response_class = LimitedResponse

    def _new_conn(self) -> Any:
        return checked_peer(super()._new_conn(), self.host)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def checked_peer(opened: Any, host: str) -> Any:
    """Return a connection to an allowed address; raise ``ConfigError`` for another one."""
    try:
        access_policy().check_peer(host, opened.getpeername()[0])
    except BaseException:
        opened.close()
        raise
    return opened


class GuardedAdapter(BaseAdapter):
    """An adapter whose requests end in time and reach allowed hosts only.

    Args:
        inner: sends the requests.
        connect_s: to open a connection.
        read_s: between two bytes of an answer.
    """

    def __init__(self, inner: BaseAdapter, connect_s: float, read_s: float) -> None:
        super().__init__()
        self._inner = inner
        self._limits = (connect_s, read_s)
        if isinstance(inner, HTTPAdapter):
            inner.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request.

        Raises:
            ConfigError: ``host_refused``.
            RedirectError: the answer leads to another address.
        """
        access_policy().check_host(urlsplit(request.url or "").hostname or "")
        kwargs["timeout"] = kwargs.get("timeout") or self._limits
        if not access_policy().has_ambient:
            kwargs["proxies"] = {}
        response = self._inner.send(request, *args, **kwargs)
        if response.is_redirect:
            response.close()
            raise RedirectError(f"it answers {response.status_code}, a redirect")
        bytes_max = access_policy().answer_bytes_max
        if request.headers.get("Content-Type") == "application/x-www-form-urlencoded":
            bytes_max = min(TOKEN_BYTES_MAX, bytes_max)  # only requests for tokens are forms
        response.raw = LimitedBody(response.raw, bytes_max)
        return response

    def close(self) -> None:
        """Close connections."""
        self._inner.close()


class _Backend(httpcore.SyncBackend):
    """Opens connections of ``httpx``.

    Args:
        is_checked: whether only allowed hosts are reached.
    """

    def __init__(self, *, is_checked: bool) -> None:
        self._is_checked = is_checked

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit_s = left_s(timeout)
        opened = super().connect_tcp(host, port, limit_s, local_address, socket_options)
        if self._is_checked:
            try:
                access_policy().check_peer(host, str(opened.get_extra_info("server_addr")[0]))
            except BaseException:
                opened.close()
                raise
        return LimitedStream(opened)


def guarded_transport(
    verify: ssl.SSLContext | bool,
    proxy: str | None,
    limits: httpx.Limits,
) -> httpx.HTTPTransport:
    """A transport of ``httpx`` whose connections are checked, and end with ``answers_within``."""
    transport = httpx.HTTPTransport(
        verify=public_trust() if verify is True else verify,
        proxy=proxy,
        limits=limits,
        trust_env=False,
    )
    _open_by(transport, _Backend(is_checked=True))
    return transport


def limited_client(client: httpx.Client) -> httpx.Client:
    """Let the connections of an operator's client end with ``answers_within``; return it."""
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - as below
        if isinstance(transport, httpx.HTTPTransport):
            _open_by(transport, _Backend(is_checked=False))
    return client


def _open_by(transport: httpx.HTTPTransport, backend: _Backend) -> None:
    transport._pool._network_backend = backend  # noqa: SLF001 - httpx hands on no backend

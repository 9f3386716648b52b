"""Requests of this node to other nodes of the cluster, made for a caller.

Rules of this file:
- A request goes with the caller's own credentials: the node that gets it decides what it would
  have decided had the caller come to it.
- A client certificate cannot travel. It is named to nodes that know this one by its own
  (``icefloe.rest.node.certificates``; TLS checks it, on a connection that nobody else can use);
  without that setting the caller is told where to ask instead.
- A node that speaks TLS sends nobody's credentials in the clear, whatever address it is told.
- It goes once, and says ``forward=false``: who gets it asks nobody else.
"""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import quote

import httpx

from connect.node.herder_api import ConflictError, UnavailableError
from connect.node.rest.access import FOR_CERTIFICATE, Credentials

CONNECT_S: Final = 3.0
FORWARD: Final = ("forward", "false")  # Kafka Connect's own parameter


class Peers:
    """The other nodes. Thread-safe.

    Args:
        trust: for their TLS; None where this node speaks none.
        may_name: whether they let this node name its callers' certificates.
    """

    def __init__(self, trust: ssl.SSLContext | None = None, *, may_name: bool = False) -> None:
        self._may_name = may_name
        self._is_secure = trust is not None
        self._client = httpx.Client(
            verify=True if trust is None else trust,
            follow_redirects=False,
            trust_env=False,
            # a kept connection may be closed by the other node just when a change is sent on it
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=0),
        )

    def ask(
        self,
        method: str,
        url: str,
        credentials: Credentials,
        *,
        timeout_s: float,
        body: bytes = b"",
    ) -> httpx.Response:
        """Send a request for a caller.

        Args:
            method: HTTP method.
            url: whole, with its query.
            credentials: the caller's.
            timeout_s: for connecting, and for each part of the answer.
            body: as the caller sent it.

        Raises:
            ConflictError: the caller is known by a certificate alone, which may not be named.
            UnavailableError: no answer, or an address without TLS for a node that speaks it.
        """
        if self._is_secure and not url.startswith("https://"):
            raise UnavailableError(f"The node at {_base(url)} does not speak TLS: it is not asked")
        headers = dict(credentials.headers)
        if credentials.certificate is not None:
            if not self._may_name:
                raise ConflictError(
                    f"The request has to be answered by {_base(url)}: ask there, or with a "
                    "password or token, as a client certificate is passed on only between nodes "
                    "of icefloe.rest.node.certificates"
                )
            headers[FOR_CERTIFICATE] = quote(credentials.certificate, safe="")
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        try:
            return self._client.request(method, url, content=body, headers=headers, timeout=timeout)
        except httpx.HTTPError as e:
            what = "It may be done all the same." if method != "GET" else "Try again."
            raise UnavailableError(
                f"The node at {_base(url)}, which has to answer this, did not: "
                f"{type(e).__name__}. {what}"
            ) from e


def _base(url: str) -> str:
    """Scheme, host and port."""
    return "/".join(url.split("/", 3)[:3])

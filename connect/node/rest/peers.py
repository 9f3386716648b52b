"""Requests to other nodes of the cluster on behalf of a caller.

Rules of this file:
- A request carries the caller's own credentials: the other node decides as if the caller had sent
  the request to it.
- A client certificate cannot be forwarded. This node names it in a header, to nodes that know this
  node's own certificate (``icefloe.rest.node.certificates``, checked by TLS). Without that setting
  the answer names the node that the caller has to ask.
- A node that uses TLS sends no credentials to an address without TLS.
- A request is sent once, with ``forward=false``: the receiver asks no further node.
"""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import quote

import httpx

from connect.gateways.public_trust import public_trust
from connect.node.node_requests import ConflictError, UnavailableError
from connect.node.rest.access import FOR_CERTIFICATE, Credentials

CONNECT_S: Final = 3.0
FORWARD: Final = ("forward", "false")  # Kafka Connect's own parameter


class Peers:
    """The other nodes. Thread-safe.

    Args:
        trust: for their TLS; None when this node uses none.
        may_name: whether they accept the certificates of callers that this node names.
    """

    def __init__(self, trust: ssl.SSLContext | None = None, *, may_name: bool = False) -> None:
        self._may_name = may_name
        self._is_secure = trust is not None
        self._client = httpx.Client(
            verify=public_trust() if trust is None else trust,
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
            url: the whole URL, with its query.
            credentials: the caller's.
            timeout_s: for connecting, and for each part of the answer.
            body: as the caller sent it.

        Raises:
            ConflictError: only a certificate identifies the caller, and it may not be named.
            UnavailableError: no answer, or this node uses TLS and the address does not.
        """
        if self._is_secure and not url.startswith("https://"):
            raise UnavailableError(f"The node at {_base(url)} does not use TLS: it is not asked")
        headers = dict(credentials.headers)
        if credentials.certificate is not None:
            if not self._may_name:
                raise ConflictError(
                    f"The request has to be answered by {_base(url)}: send it to that node, or "
                    "use a password or token; a client certificate is forwarded only between "
                    "nodes of icefloe.rest.node.certificates"
                )
            headers[FOR_CERTIFICATE] = quote(credentials.certificate, safe="")
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        try:
            return self._client.request(method, url, content=body, headers=headers, timeout=timeout)
        except httpx.HTTPError as e:
            advice = "The request may still be done." if method != "GET" else "Try again."
            raise UnavailableError(
                f"The node at {_base(url)}, which has to answer this, did not: "
                f"{type(e).__name__}. {advice}"
            ) from e


def _base(url: str) -> str:
    """Return scheme, host and port."""
    return "/".join(url.split("/", 3)[:3])

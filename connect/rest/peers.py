"""Requests of this node to other nodes of the cluster, made for a caller.

Rules of this file:
- A request goes with the caller's own credentials: the node that gets it decides what it would
  have decided had the caller come to it.
- It goes once, and says ``forward=false``: who gets it asks nobody else.
"""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from connect.rest.herder_api import ConflictError, UnavailableError
from connect.rest.routes import Call

CONNECT_S: Final = 3.0
FORWARD: Final = ("forward", "false")  # Kafka Connect's own parameter


class Peers:
    """The other nodes. Thread-safe.

    Args:
        trust: for their TLS; None is the system's.
    """

    def __init__(self, trust: ssl.SSLContext | None = None) -> None:
        self._client = httpx.Client(
            verify=True if trust is None else trust,
            follow_redirects=False,
            trust_env=False,
            # a kept connection may be closed by the other node just when a change is sent on it
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=0),
        )

    def ask(
        self, method: str, url: str, call: Call, *, timeout_s: float, body: bytes = b""
    ) -> httpx.Response:
        """Send a request for a caller.

        Args:
            method: HTTP method.
            url: whole, with its query.
            call: whose credentials go along.
            timeout_s: for connecting, and for each part of the answer.
            body: as the caller sent it.

        Raises:
            ConflictError: the caller is known by a client certificate alone.
            UnavailableError: no answer.
        """
        if call.has_certificate_only:
            raise ConflictError(
                f"The request has to be answered by {_base(url)}: ask there, or with a password or "
                "token, as a client certificate cannot be passed on"
            )
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        try:
            return self._client.request(
                method, url, content=body, headers=dict(call.passed_on), timeout=timeout
            )
        except httpx.HTTPError as e:
            what = "It may be done all the same." if method != "GET" else "Try again."
            raise UnavailableError(
                f"The node at {_base(url)}, which has to answer this, did not: "
                f"{type(e).__name__}. {what}"
            ) from e


def _base(url: str) -> str:
    """Scheme, host and port."""
    return "/".join(url.split("/", 3)[:3])

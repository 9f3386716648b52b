"""Requests that another node of the cluster answers.

Rules of this file:
- Any node takes any request. Changes are made by the leader; what only the coordinator's node knows
  is answered by that node; everything else by the node that was asked.
- A request is passed on as it came, once (``peers``).
- What was changed through this node is visible to the next request to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlencode

from fastapi import Response

from connect.node.herder_api import ConflictError, HerderApi
from connect.node.rest.access import Credentials
from connect.node.rest.peers import FORWARD, Peers

FORWARD_TIMEOUT_S: Final = 90.0
READ_TIMEOUT_S: Final = 10.0
"""For what changes nothing: a client would rather know that the node is silent."""
READ_BACK_S: Final = 5.0
POSITION: Final = "icefloe-config-offset"
"""Header of a leader's answer: how far to read until the change is visible."""


@dataclass(frozen=True, slots=True)
class Passable:
    """A request that can be passed on.

    Attributes:
        method: HTTP method.
        path: of the path operation, with its parameters in braces.
        values: path parameters, decoded.
        query: query parameters in order, values decoded.
        body: as sent.
        credentials: the caller's.
    """

    method: str
    path: str
    values: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    body: bytes
    credentials: Credentials


class Forwarding:
    """Passes requests on.

    Args:
        herder: knows which node answers what.
        peers: the other nodes.
    """

    def __init__(self, herder: HerderApi, peers: Peers) -> None:
        self._herder = herder
        self._peers = peers

    def answer(self, at: Literal["leader", "coordinator"], asked: Passable) -> Response | None:
        """Return the answer of the node that has to give it; None where this node does.

        Raises:
            ConflictError: the cluster has no leader at this moment.
            UnavailableError: the node is starting, or the other one does not answer.
        """
        is_local = asked.path.startswith("/admin") and ("scope", "cluster") not in asked.query
        url = None if is_local else self._herder.where(at, asked.values.get("name"))
        if url is None:
            return None
        if FORWARD not in asked.query:
            return self._ask(url, asked)
        if at == "leader":
            raise ConflictError(
                "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
            )
        return None  # the placement changes at this moment: say what is known on this node

    def _ask(self, url: str, asked: Passable) -> Response:
        path = asked.path.format(**{k: quote(v, safe="") for k, v in asked.values.items()})
        query = urlencode([*asked.query, FORWARD])
        reply = self._peers.ask(
            asked.method,
            f"{url}{path}?{query}",
            asked.credentials,
            timeout_s=READ_TIMEOUT_S if asked.method == "GET" else FORWARD_TIMEOUT_S,
            body=asked.body,
        )
        position = reply.headers.get(POSITION, "")
        if position.isdecimal():
            self._herder.await_position(int(position), READ_BACK_S)
        passed = {"location", "retry-after", "content-type"}
        kept = {k: v for k, v in reply.headers.items() if k in passed}
        return Response(reply.content, reply.status_code, kept)

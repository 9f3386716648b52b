"""Forwards requests that another node of the cluster has to answer.

Rules of this file:
- Any node accepts any request. The leader makes changes. The node of a coordinator answers requests
  about its rounds and tables. The node that received a request answers all others.
- A request is forwarded unchanged, once (``peers``).
- A change that was made through this node is visible to the next request to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlencode

from fastapi import Response

from connect.node.herder.cluster.cluster import ClusterView
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.node_requests import ConflictError
from connect.node.rest.access import Credentials
from connect.node.rest.peers import FORWARD, Peers
from connect.state.config_store import ConfigStore

FORWARD_TIMEOUT_S: Final = 90.0
READ_TIMEOUT_S: Final = 10.0
"""For requests that change nothing: the client should learn early that the node is silent."""
READ_BACK_S: Final = 5.0
POSITION: Final = "icefloe-config-offset"
"""Header of a leader's answer: the config topic's offset at which the change is visible."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request in a form that can be sent to another node.

    Attributes:
        path: of the path operation, with its parameters in braces.
        values: path parameters, decoded.
        query: query parameters in order, values decoded.
    """

    method: str
    path: str
    values: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    body: bytes
    credentials: Credentials


class Forwarding:
    """Forwards requests.

    Args:
        connectors: whether this node has started.
        cluster: leader and placements.
        store: how far this node has read the config topic.
    """

    def __init__(
        self,
        connectors: StoredConnectors,
        cluster: ClusterView,
        store: ConfigStore,
        peers: Peers,
    ) -> None:
        self._connectors = connectors
        self._cluster = cluster
        self._store = store
        self._peers = peers

    def answer(
        self, at: Literal["leader", "coordinator"], request: ForwardedRequest
    ) -> Response | None:
        """Return the answer of the node that has to answer; None when this node does.

        Raises:
            ConflictError: the cluster has no leader now.
            UnavailableError: the node is starting, or the other one does not answer.
        """
        is_local = request.path.startswith("/admin") and ("scope", "cluster") not in request.query
        if is_local:
            return None
        self._connectors.check_started()
        url = self._cluster.node_to_ask(at, request.values.get("name"))
        if url is None:
            return None
        if FORWARD not in request.query:
            return self._ask(url, request)
        if at == "leader":
            raise ConflictError(
                "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
            )
        return None  # the placement is changing: answer with the state of this node

    def _ask(self, url: str, request: ForwardedRequest) -> Response:
        path = request.path.format(**{k: quote(v, safe="") for k, v in request.values.items()})
        query = urlencode([*request.query, FORWARD])
        reply = self._peers.ask(
            request.method,
            f"{url}{path}?{query}",
            request.credentials,
            timeout_s=READ_TIMEOUT_S if request.method == "GET" else FORWARD_TIMEOUT_S,
            body=request.body,
        )
        position = reply.headers.get(POSITION, "")
        if position.isdecimal():
            self._store.await_position(int(position), READ_BACK_S)
        forwarded = {"location", "retry-after", "content-type"}
        headers = {k: v for k, v in reply.headers.items() if k in forwarded}
        return Response(reply.content, reply.status_code, headers)

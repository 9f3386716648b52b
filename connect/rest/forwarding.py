"""Requests that another node of the cluster answers.

Rules of this file:
- Any node takes any request. Changes are made by the leader, what only the coordinator's node knows
  is answered by that one, everything else by whoever was asked.
- A request is passed on as it came, once (``peers``).
- What was changed through this node is visible to the next request to it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from connect.rest.described import Described
from connect.rest.herder_api import ConflictError, HerderApi
from connect.rest.peers import FORWARD, Peers
from connect.rest.routes import Answer, Call, Endpoint

FORWARD_TIMEOUT_S: Final = 90.0
READ_TIMEOUT_S: Final = 10.0
"""For what changes nothing: whoever looks would rather know that the node is silent."""
READ_BACK_S: Final = 5.0
POSITION: Final = "icefloe-config-offset"


class Forwarding:
    """Passes requests on.

    Args:
        herder: knows who answers what.
        peers: the other nodes.
    """

    def __init__(self, herder: HerderApi, peers: Peers) -> None:
        self._herder = herder
        self._peers = peers

    def around(self, described: Described, endpoint: Endpoint) -> Endpoint:
        """The endpoint, answered where it has to be."""
        at = described.at
        if at == "here":
            return endpoint

        def serve(call: Call) -> Answer:
            if described.path.startswith("/admin") and "cluster" not in call.values("scope"):
                return endpoint(call)
            url = self._herder.where(at, call.path.get("name"))
            if url is None:
                answer = endpoint(call)
                if at == "leader" and FORWARD in call.query:
                    return answer.with_headers({POSITION: str(self._herder.position())})
                return answer
            if FORWARD not in call.query:
                return self._ask(url, described, call)
            if at == "leader":
                raise ConflictError(
                    "Cannot complete request because of a conflicting operation (e.g. worker "
                    "rebalance)"
                )
            return endpoint(call)  # the placement changes at this moment: say what is known here

        return serve

    def _ask(self, url: str, described: Described, call: Call) -> Answer:
        path = described.path.format(**{k: quote(v, safe="") for k, v in call.path.items()})
        query = urlencode([*call.query, FORWARD])
        reply = self._peers.ask(
            described.method,
            f"{url}{path}?{query}",
            call,
            timeout_s=READ_TIMEOUT_S if described.method == "GET" else FORWARD_TIMEOUT_S,
            body=call.body,
        )
        position = reply.headers.get(POSITION, "")
        if position.isdecimal():
            self._herder.await_position(int(position), READ_BACK_S)
        kept = {k: v for k, v in reply.headers.items() if k in {"location", "retry-after"}}
        kind = reply.headers.get("content-type")
        text = reply.text if reply.content else None
        return Answer(reply.status_code, headers=kept, text=text, content_type=kind)

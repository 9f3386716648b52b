"""Requests that another node of the cluster answers.

Rules of this file:
- Any node takes any request. Changes are made by the leader, what only the coordinator's node knows
  is answered by that one, everything else by whoever was asked.
- A request is passed on as it came, once, with the caller's own credentials: no node acts for
  anybody. Who is known by a client certificate alone is told where to ask instead.
- What was changed through this node is visible to the next request to it.
"""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import quote, urlencode

import httpx

from connect.rest.described import Described
from connect.rest.herder_api import ConflictError, HerderApi, UnavailableError
from connect.rest.routes import Answer, Call, Endpoint

FORWARD_TIMEOUT_S: Final = 90.0
FORWARD_CONNECT_S: Final = 3.0
READ_BACK_S: Final = 5.0
POSITION: Final = "icefloe-config-offset"
_FORWARD: Final = ("forward", "false")  # Kafka Connect's own parameter


class Forwarding:
    """Passes requests on.

    Args:
        herder: knows who answers what.
        trust: for the other nodes' TLS; None is the system's.
    """

    def __init__(self, herder: HerderApi, trust: ssl.SSLContext | None = None) -> None:
        self._herder = herder
        self._client = httpx.Client(
            verify=True if trust is None else trust,
            timeout=httpx.Timeout(FORWARD_TIMEOUT_S, connect=FORWARD_CONNECT_S),
            follow_redirects=False,
            trust_env=False,
        )

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
                if at == "leader" and _FORWARD in call.query:
                    return answer.with_headers({POSITION: str(self._herder.position())})
                return answer
            if _FORWARD not in call.query:
                return self._ask(url, described, call)
            if at == "leader":
                raise ConflictError(
                    "Cannot complete request because of a conflicting operation (e.g. worker "
                    "rebalance)"
                )
            return endpoint(call)  # the placement changes at this moment: say what is known here

        return serve

    def _ask(self, url: str, described: Described, call: Call) -> Answer:
        if call.has_certificate_only:
            raise ConflictError(
                f"The request has to be answered by {url}: ask there, or with a password or token, "
                "as a client certificate cannot be passed on"
            )
        path = described.path.format(**{k: quote(v, safe="") for k, v in call.path.items()})
        query = urlencode([*call.query, _FORWARD])
        try:
            reply = self._client.request(
                described.method,
                f"{url}{path}?{query}",
                content=call.body,
                headers=dict(call.passed_on),
            )
        except httpx.HTTPError as e:
            what = "It may be done all the same." if described.method != "GET" else "Try again."
            raise UnavailableError(
                f"The node at {url}, which has to answer this, did not: {type(e).__name__}. {what}"
            ) from e
        position = reply.headers.get(POSITION, "")
        if position.isdecimal():
            self._herder.await_position(int(position), READ_BACK_S)
        kept = {k: v for k, v in reply.headers.items() if k in {"location", "retry-after"}}
        kind = reply.headers.get("content-type")
        text = reply.text if reply.content else None
        return Answer(reply.status_code, headers=kept, text=text, content_type=kind)

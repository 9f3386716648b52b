"""A client of a node that repeats requests during an election, as Kafka Connect's clients do."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler

import httpx

from connect.gateways.public_trust import public_trust
from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, send

ELECTION_S = 120  # a node that is starved of processor time loses its place and gets it again
ANSWER_S = 120
_PAUSE_S = 0.2


class PatientTransport(httpx.HTTPTransport):
    """Repeats a request while the answer is 409 because of a rebalance.

    The node has then done nothing. Other answers with 409 are returned.
    """

    def __init__(self) -> None:
        super().__init__(verify=public_trust())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request until a leader has answered it."""
        deadline = time.monotonic() + ELECTION_S
        while True:
            response = super().handle_request(request)
            if response.status_code != httpx.codes.CONFLICT:
                return response
            is_election = b"rebalance" in response.read()
            if not is_election or time.monotonic() > deadline:
                return response
            time.sleep(_PAUSE_S)


class PatientProxy(LoopbackProxy):
    """Stands before a node, for programs that do not repeat requests themselves."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._client.close()
        self._client = httpx.Client(timeout=ANSWER_S, transport=PatientTransport())

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        answer = self._forward(request, body, "host", "accept-encoding")
        left_out = HOP_BY_HOP | {"content-encoding"}
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in left_out}
        send(request, answer.status_code, headers, answer.content)


def patient_client(url: str, **headers: str) -> httpx.Client:
    """A client of the API at ``url``."""
    transport = PatientTransport()
    return httpx.Client(base_url=url, timeout=ANSWER_S, transport=transport, headers=headers)

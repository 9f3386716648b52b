"""A real HTTP server that keeps the JSON messages it receives and answers as a test decides."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WebhookServer:
    """Listens on a free loopback port until ``close``.

    Attributes:
        messages: every accepted body.
        authorizations: the header of every request.
        status: of the next answers.
        may_answer: cleared, the server reads requests and does not answer.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.status = 204
        self.may_answer = threading.Event()
        self.may_answer.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Takes POST."""

            def do_POST(self) -> None:
                """Keep the body if it is accepted."""
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.authorizations.append(self.headers.get("authorization"))
                outer.may_answer.wait()
                if outer.status < 300:
                    outer.messages.append(json.loads(body))
                self.send_response(outer.status)
                self.send_header("location", outer.url)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?token=hook-secret-77"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

"""A real HTTP server that keeps the requests that it receives and answers as a test decides."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HttpReceiver:
    """Takes POST requests on a free loopback port until ``close``.

    Attributes:
        url: base of the server.
        headers: of every request, also of those without an answer yet.
        status: of the next answers.
        answer_headers: of the next answers.
        may_answer: cleared, the server reads requests and does not answer.
    """

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answer_headers = {"content-length": "0"}
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """Takes POST."""

            def do_POST(self) -> None:
                """Keep the request."""
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
                receiver.may_answer.wait()
                receiver._keep(self.path, body)
                self.send_response(receiver.status)
                for name, value in receiver.answer_headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def _keep(self, path: str, body: bytes) -> None:
        """Keep the body of a request that is about to be answered."""
        raise NotImplementedError

"""Requests of a REST catalog's client, and answers that are read without being kept."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

import pytest
from requests import ConnectionError as RequestsConnectionError
from requests import PreparedRequest, Session

from connect.gateways.catalog.rest_requests import (
    _PIECE_BYTES,
    PreparedRequests,
    body_of,
    names,
)
from tests.support.counted_calls import counted_calls

BODY = b'{"current-snapshot-id":123456789,' + b'"x":"' + b"y" * 3_000_000 + b'","uuid":"abc-def"}'


class Server:
    """Answers with one body, in the form that the path names.

    Attributes:
        requests: method, path, headers and body of each.
        connections: that were opened.
        before: sent before the body.
        sizes: of chunks, one after the other.
        first_pause_s: before an answer.
        pause_s: after each chunk.
        extension: behind the size of each chunk.
        last_chunk: with its trailer.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.before = b""
        self.sizes = [30_000]
        self.first_pause_s = self.pause_s = 0.0
        self.extension = b""
        self.last_chunk = b"0\r\n\r\n"
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                sent = {k.lower(): v for k, v in self.headers.items()}
                server.requests.append((self.command, self.path, sent, body))
                time.sleep(server.first_pause_s)
                self.send_response(200)
                self.send_header("Set-Cookie", "node=7")
                server.write(self, self.path.partition("?")[0])

            do_GET = do_POST = _answer  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                """Log nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def write(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        """Send the body."""
        form = path.strip("/")
        body = self.before + BODY
        body = gzip.compress(body, 1) if "gzip" in form else body
        if "gzip" in form:
            handler.send_header("Content-Encoding", "gzip")
        if "chunked" in form:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for piece in self.pieces(body):
                handler.wfile.write(b"%x%s\r\n%s\r\n" % (len(piece), self.extension, piece))
                if self.pause_s:
                    time.sleep(self.pause_s)
            if "cut" not in form:
                handler.wfile.write(self.last_chunk)
        else:
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: len(body) // 2] if "cut" in form else body)
        if "cut" in form:
            handler.close_connection = True

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """Split a body into chunks."""
        at = 0
        for size in cycle(self.sizes):
            if at >= len(body):
                return
            yield body[at : at + size]
            at += size

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server."""
    running = Server()
    yield running
    running.close()


@contextmanager
def session() -> Iterator[Session]:
    """A session with a login, as PyIceberg makes it."""
    with Session() as opened:

        def login(request: PreparedRequest) -> PreparedRequest:
            request.headers["Authorization"] = "Bearer session"
            return request

        opened.auth = login
        opened.headers["Content-type"] = "application/json"
        yield opened


def test_a_request_equals_that_of_the_session(server: Server) -> None:
    """Address, headers, cookies, login and body."""
    url = f"{server.url}/plain/a%20b%1Fc/d é"
    for method, body in (("GET", None), ("POST", b'{"a":1}')):
        with session() as opened:
            own = {"X-Own": "1", "Authorization": "Bearer table", "Accept": None}
            sender = PreparedRequests(opened)
            for _ in range(2):
                body_of(sender.send(method, url, body=body, headers=own))
        with session() as opened:
            for _ in range(2):
                opened.request(method, url, data=body, headers=own)
        prepared, direct = server.requests[:2], server.requests[2:]
        server.requests.clear()
        assert prepared == direct
        assert prepared[1][2]["cookie"] == "node=7"


def test_the_environment_is_read_once(server: Server) -> None:
    """And the connection is used again after each answer."""
    with session() as opened, counted_calls() as calls:
        sender = PreparedRequests(opened)
        for form in ("plain", "gzip", "chunked", "chunked-gzip"):
            assert names(sender.send("GET", f"{server.url}/{form}"), [b"123456789"])
            assert body_of(sender.send("GET", f"{server.url}/{form}")) == BODY
    assert calls["get_environ_proxies"] == 1
    assert server.connections == 1


@pytest.mark.parametrize("form", ["plain", "gzip", "chunked", "chunked-gzip"])
def test_texts_are_found_wherever_they_are(server: Server, form: str) -> None:
    """At the start, at the end, and not at all."""
    with session() as opened:
        sender = PreparedRequests(opened)

        def found(*texts: bytes) -> bool:
            return names(sender.send("GET", f"{server.url}/{form}"), texts)

        assert found(b"123456789")
        assert found(b"abc-def", b"123456789")
        assert found()
        assert not found(b"123456788")
        assert not found(b"123456789", b"abc-deg")


def test_a_text_across_two_pieces_is_found(server: Server) -> None:
    """Wherever the border is."""
    with session() as opened:
        sender = PreparedRequests(opened)
        for at in range(_PIECE_BYTES - 12, _PIECE_BYTES + 2):
            server.before = b"x" * at
            assert names(sender.send("GET", f"{server.url}/plain"), [b"current"])


@pytest.mark.parametrize("form", ["cut", "cut-gzip", "cut-chunked", "cut-chunked-gzip"])
def test_an_answer_that_ends_early_is_an_error(server: Server, form: str) -> None:
    """Also if the text was found before: the catalog may have failed within the answer."""
    with session() as opened:
        sender = PreparedRequests(opened)
        for text in (b"123456789", b"abc-def"):
            with pytest.raises(RequestsConnectionError):
                names(sender.send("GET", f"{server.url}/{form}"), [text])
        with pytest.raises(RequestsConnectionError):
            body_of(sender.send("GET", f"{server.url}/{form}"))


@pytest.mark.parametrize("sizes", [[1], [17, 8_192, 3], [65_536], [1_048_570, 1_048_577]])
def test_chunks_of_any_size_are_received(server: Server, sizes: list[int]) -> None:
    """With extensions and trailers, and the connection is used again."""
    server.sizes, server.extension = sizes, b";name=value"
    server.last_chunk = b"000;last\r\nChecksum: 0\r\nOther: 1\r\n\r\n"
    url = f"{server.url}/chunked"
    if sizes == [1]:
        server.write = _short_body(server)  # type: ignore[method-assign]  # three million chunks
    with session() as opened:
        sender = PreparedRequests(opened)
        for _ in range(3):
            assert names(sender.send("GET", url), [b"123456789"])
    assert server.connections == 1


def _short_body(server: Server) -> Any:
    def write(handler: BaseHTTPRequestHandler, _path: str) -> None:
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        body = b"123456789" + b"z" * 2_000
        for piece in server.pieces(body):
            handler.wfile.write(b"%x%s\r\n%s\r\n" % (len(piece), server.extension, piece))
        handler.wfile.write(server.last_chunk)

    return write


@pytest.mark.parametrize("size", [b"x", b"", b"f" * 70_000])
def test_a_chunk_without_a_size_is_an_error(server: Server, size: bytes) -> None:
    """It is not taken for the end of the answer."""
    server.last_chunk = size + b"\r\n\r\n0\r\n\r\n"
    with session() as opened, pytest.raises(RequestsConnectionError):
        names(PreparedRequests(opened).send("GET", f"{server.url}/chunked"), [b"123456789"])


def test_bytes_behind_an_answer_are_not_the_next_answer(server: Server) -> None:
    """Neither on the same connection nor on another one."""
    server.last_chunk = b"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n987654321"
    with session() as opened:
        sender = PreparedRequests(opened)
        for _ in range(3):
            assert names(sender.send("GET", f"{server.url}/chunked"), [b"123456789"])
            assert not names(sender.send("GET", f"{server.url}/plain"), [b"987654321"])

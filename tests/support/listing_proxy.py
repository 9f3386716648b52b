"""A proxy for Azurite with a parameter of Azure that Azurite ignores.

The Delta library lists the log from a name on (``startFrom``). Azurite 3.37 answers with the whole
listing, which the library takes for a wrong log.

The proxy is a process of its own. Some methods of the library keep Python's lock during a request,
so a proxy in the same process could not answer before the library's timeout of 60 s.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, send

_BLOB = re.compile(rb"<Blob>.*?<Name>(.*?)</Name>.*?</Blob>", re.DOTALL)


class ListingProxy(LoopbackProxy):
    """Forwards requests, and cuts listings off before ``startFrom``."""

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        answer = self._forward(request, body)
        content, length = answer.content, None
        if request.command == "HEAD":
            length = int(answer.headers.get("Content-Length") or 0)
        first = parse_qs(urlsplit(request.path).query).get("startFrom")
        if first is not None:
            start = first[0].encode()
            content = _BLOB.sub(lambda match: match[0] if match[1] >= start else b"", content)
        left_out = HOP_BY_HOP | {"content-encoding"}
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in left_out}
        send(request, answer.status_code, headers, content, length=length)


@contextmanager
def listing_proxy(target: str) -> Iterator[int]:
    """Run the proxy for a server; the port of its process."""
    command = [sys.executable, "-m", __name__, target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    proxy = ListingProxy(sys.argv[1])
    print(proxy.uri.rpartition(":")[2], flush=True)
    sys.stdin.read()  # until the test ends, or is killed

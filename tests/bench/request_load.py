"""Sends requests at a steady rate: ``python -m tests.bench.request_load URL NAME ...``.

A process of its own, so that it shares no interpreter with what it measures. Each connection has
its own schedule; a late answer makes the next request late, and the delay is counted from when it
was due. Rate 0 sends each request as soon as the one before is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

PATHS = ("/connectors/{name}/status", "/connectors", "/connectors/{name}/config")


class RequestLoad:
    """A number of connections to one node."""

    def __init__(self, url: str, name: str, rate: float, connections: int, seconds: float) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.host, self.port = parts.hostname, parts.port
        self.requests = [
            f"GET {path.format(name=name)} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
            for path in PATHS
        ]
        self.every_s = connections / rate if rate else 0.0
        self.connections = connections
        self.seconds = seconds
        self.delays_s: list[float] = []
        self.wrong = 0

    async def run(self) -> dict[str, float]:
        """Send requests for the given time; return times in milliseconds and the rate."""
        start = time.monotonic() + 0.2
        end = start + self.seconds
        gap = self.every_s / self.connections
        await asyncio.gather(*(self._one(start + n * gap, end, n) for n in range(self.connections)))
        took = max(time.monotonic() - start, 0.001)
        ordered = sorted(self.delays_s) or [0.0]
        at = {p: ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in (50, 95, 99)}
        return {
            "requests_s": round(len(self.delays_s) / took),
            "wrong": self.wrong,
            **{f"p{p}_ms": round(value * 1000, 1) for p, value in at.items()},
            "longest_ms": round(ordered[-1] * 1000, 1),
        }

    async def _one(self, due: float, end: float, number: int) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while due < end:
            now = time.monotonic()
            if now < due:
                await asyncio.sleep(due - now)
            if time.monotonic() >= end:  # too late: requests that are still due are not sent
                break
            sent = due if self.every_s else time.monotonic()
            writer.write(self.requests[number % len(self.requests)])
            number += 1
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            self.wrong += not head.startswith(b"HTTP/1.1 200")
            self.delays_s.append(time.monotonic() - sent)
            due = due + self.every_s if self.every_s else time.monotonic()
        writer.close()


def main() -> None:
    """Run it and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    load = RequestLoad(chosen.url, chosen.name, chosen.rate, chosen.connections, chosen.seconds)
    json.dump(asyncio.run(load.run()), sys.stdout)


if __name__ == "__main__":
    main()

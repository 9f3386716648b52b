"""The page of the reference lists every request that Kafka Connect does not have."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.routing import APIRoute

from connect.node.rest.app import ROUTERS

PAGE = Path(__file__).parents[5] / "docs" / "reference" / "rest-operations.md"
CONNECTOR = "/icefloe/v1/connectors/<name>"
PROBES = {"GET /livez", "GET /readyz", "GET /health", "GET /metrics"}


def test_the_page_lists_every_request() -> None:
    """With its method; paths below a connector are listed without its part."""
    served = {
        f"{method} {route.path.replace('{', '<').replace('}', '>')}"
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.path.startswith("/icefloe/")
        for method in route.methods
    }
    listed = re.findall(r"^\| `([A-Z]+ [^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    full = [request.replace("…", CONNECTOR) for request in listed]
    assert sorted(full) == sorted(served | PROBES)

"""The status page at ``/ui``: static files of this package.

Rules of this file:
- The files contain no data of the node and are public in the package, so they need no
  authentication. The page requests its data with the caller's own grants.
- The content security policy lets the page load its own files and call its own node, nothing else:
  no inline script or style, no other host, no surrounding frame. Trusted Types without any policy
  prevent every script from parsing text as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from connect.node.rest.access import open_to_all
from connect.node.rest.api_errors import ApiError
from connect.node.rest.api_route import ApiRoute, errors

router = APIRouter(prefix="/ui", route_class=ApiRoute, tags=["status page"])

PAGE: Final = "index.html"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class PageFile(Response):
    """A file of the page, of any media type."""

    media_type = "*/*"


@cache
def _files() -> Mapping[str, tuple[str, str]]:
    """Return text and media type of each file."""
    return {
        file.name: (file.read_text("utf-8"), _TYPES[file.name.rpartition(".")[2]])
        for file in (files("connect.node.rest") / "ui").iterdir()
    }


@router.get("", response_class=HTMLResponse, dependencies=[open_to_all()])
def read_page() -> Response:
    """Serve the status page."""
    return _response(PAGE)


@router.get("/{file}", response_class=PageFile, dependencies=[open_to_all()], responses=errors(404))
def read_page_part(file: str) -> Response:
    """Serve a file of the status page."""
    return _response(file)


def _response(name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise ApiError(404, "HTTP 404 Not Found")
    text, media_type = file
    return Response(text, headers=_HEADERS, media_type=media_type)

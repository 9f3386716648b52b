"""The status page at ``/ui``: files of this package, served as they are.

Rules of this file:
- The files hold nothing of the node, so they are open to all, as anybody can read them in the
  package; what the page shows it asks for with the caller's own rights.
- The policy lets the page load its own files and call its own node, nothing else: no inline
  script or style, no other host, no frame around it; Trusted Types without any policy make the
  browser refuse to read text as HTML, whatever a script does.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from connect.rest.errors import ApiError
from connect.rest.routes import Answer, Call

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


class StatusPage:
    """Endpoints of the page; its files are read once."""

    def __init__(self) -> None:
        self._answers: Mapping[str, Answer] = {
            file.name: Answer(
                200,
                headers=_HEADERS,
                text=file.read_text("utf-8"),
                content_type=_TYPES[file.name.rpartition(".")[2]],
            )
            for file in (files("connect.rest") / "ui").iterdir()
        }

    def page(self, call: Call) -> Answer:
        """``GET /ui``."""
        del call
        return self._answers[PAGE]

    def file(self, call: Call) -> Answer:
        """``GET /ui/<file>``."""
        found = self._answers.get(call.path["file"])
        if found is None:
            raise ApiError(404, "HTTP 404 Not Found")
        return found

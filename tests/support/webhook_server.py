"""A webhook that keeps the JSON messages that it accepts."""

from __future__ import annotations

import json
from typing import Any

from tests.support.http_receiver import HttpReceiver

WEBHOOK_PATH = "/hook?token=hook-secret-77"


class WebhookServer(HttpReceiver):
    """Accepts messages while ``status`` is below 300; its address holds a token.

    Attributes:
        messages: every accepted body.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        super().__init__()
        self.status = 204
        self.url += WEBHOOK_PATH
        self.answer_headers = {"location": self.url}

    @property
    def authorizations(self) -> list[str | None]:
        """The header of every request."""
        return [headers.get("authorization") for headers in self.headers]

    def _keep(self, path: str, body: bytes) -> None:
        if path == WEBHOOK_PATH and self.status < 300:
            self.messages.append(json.loads(body))

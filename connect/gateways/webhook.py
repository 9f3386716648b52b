"""An HTTP endpoint of an operator that takes JSON messages.

Rules of this file:
- The address is the operator's own, so the limits on what connectors may reach do not apply.
- A redirect is not followed: the address and its token are for one server.
- Errors contain neither the address nor the authorization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from connect.errors import ConfigError, RetriableError
from connect.redaction.secret_values import KNOWN

WEBHOOK_TIMEOUT_S: Final = 10.0
_REPEATED: Final = frozenset({408, 425, 429})


class Webhook:
    """Sends messages to one address.

    Args:
        url: ``http`` or ``https``; a secret, because many services put a token into it.
        authorization: value of the header ``Authorization``; None sends none.

    Raises:
        ConfigError: ``webhook``, the address is no HTTP address.
    """

    def __init__(self, url: str, authorization: str | None = None) -> None:
        KNOWN.add(url)
        if authorization:
            KNOWN.add(authorization)
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError(
                "icefloe.notifications.webhook.url must be http(s)://host[:port]/path",
                code="webhook",
            )
        self._url = url
        headers = {"authorization": authorization} if authorization else {}
        self._client = httpx.Client(
            headers=headers, timeout=WEBHOOK_TIMEOUT_S, follow_redirects=False
        )

    def post(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            RetriableError: ``webhook_unavailable``, no answer, or the server is overloaded.
            ConfigError: ``webhook_refused``, the server does not accept the message.
        """
        try:
            status = self._client.post(self._url, json=message).status_code
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise RetriableError(
                f"the webhook does not answer: {type(error).__name__}", code="webhook_unavailable"
            ) from None  # the text of the exception may contain the address
        if status in _REPEATED or status >= 500:
            raise RetriableError(
                f"the webhook answered with HTTP {status}", code="webhook_unavailable"
            )
        if status >= 300:
            raise ConfigError(
                f"the webhook answered with HTTP {status}; check "
                "icefloe.notifications.webhook.url and icefloe.notifications.webhook.authorization",
                code="webhook_refused",
            )

    def close(self) -> None:
        """Close connections."""
        self._client.close()

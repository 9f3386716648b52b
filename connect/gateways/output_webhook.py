"""An HTTP endpoint that a connector names, which receives rows as JSON.

Rules of this file:
- Tenants choose the address. It is checked like those of catalogs: the host before each request,
  and the peer of each connection before the first byte is sent. Redirects are not followed, and
  proxies of the node's environment are not used.
- A request ends in time, also if the server answers byte by byte. Only a small part of an answer is
  read.
- Errors contain neither the address nor the authorization.
"""

from __future__ import annotations

import threading
from typing import Final
from urllib.parse import urlsplit

import httpx

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.guarded_http import guarded_transport
from connect.gateways.reach import reach
from connect.redaction.secret_values import KNOWN

POST_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 2**10
_REPEATED: Final = frozenset({408, 425, 429})


def webhook_host(url: str) -> str | None:
    """Return the host of an address; None if it is no HTTP address."""
    try:
        parts = urlsplit(url)
        is_plain = not any(c <= " " or c in '\\"<>' for c in url) and "@" not in parts.netloc
        is_valid = parts.scheme in {"http", "https"} and is_plain and parts.port != 0
    except ValueError:
        return None
    return parts.hostname if is_valid and parts.hostname else None


class OutputWebhook:
    """Sends rows to one address.

    Args:
        url: ``http`` or ``https``, without a login; a secret, because it may contain a token.
        authorization: value of the header ``Authorization``; None sends none.
        key: of the address in the configuration, for errors.
        timeout_s: of a request.

    Raises:
        ConfigError: ``webhook``, the address is no HTTP address.
    """

    def __init__(
        self,
        url: str,
        authorization: str | None,
        *,
        key: str,
        timeout_s: float = POST_TIMEOUT_S,
    ) -> None:
        KNOWN.add(url)
        if authorization:
            KNOWN.add(authorization)
        host = webhook_host(url)
        if host is None:
            raise ConfigError(
                f"{key} must be http(s)://host[:port]/path, without a login", code="webhook"
            )
        self._url, self._host, self._key = url, host, key
        self._timeout_s = timeout_s
        self._headers = {"content-type": "application/json"}
        if authorization:
            self._headers["authorization"] = authorization
        self._client: httpx.Client | None = None

    def post(self, body: bytes, idempotency_key: str) -> None:
        """Send rows.

        Args:
            body: JSON.
            idempotency_key: equal for equal rows, so that the server can ignore a repetition.

        Raises:
            RetriableError: ``webhook_unavailable``, no answer in time, or the server is
                overloaded.
            ConfigError: ``webhook_refused``, the server does not accept the rows;
                ``host_refused``.
        """
        reach().check_host(self._host)
        status = self._status(body, idempotency_key)
        if status in _REPEATED or status >= 500:
            raise RetriableError(
                f"the webhook of {self._key} answered with HTTP {status}",
                code="webhook_unavailable",
            )
        if status >= 300:
            raise ConfigError(
                f"the webhook of {self._key} answered with HTTP {status}; check the address, the "
                "authorization, and what the server accepts",
                code="webhook_refused",
            )

    def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _status(self, body: bytes, idempotency_key: str) -> int:
        """Return the status of an answer, or raise within the time.

        A request that hangs is left to its thread. Its connections are closed, so it ends soon.
        """
        client = self._client = self._client or self._new_client()
        outcome: list[int | Exception] = []

        def call() -> None:
            try:
                outcome.append(self._request(client, body, idempotency_key))
            except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError, IcefloeError) as e:
                outcome.append(e)

        thread = threading.Thread(target=call, name="webhook", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        reached = outcome[0] if outcome else TimeoutError()
        if isinstance(reached, int):
            return reached
        self.close()
        if isinstance(reached, IcefloeError):
            raise reached
        raise RetriableError(
            f"the webhook of {self._key} does not answer: {type(reached).__name__}",
            code="webhook_unavailable",
        )  # the text of the exception may contain the address

    def _request(self, client: httpx.Client, body: bytes, idempotency_key: str) -> int:
        headers = {**self._headers, "idempotency-key": idempotency_key}
        with client.stream("POST", self._url, content=body, headers=headers) as answer:
            size = 0
            for piece in answer.iter_raw():
                size += len(piece)
                if size > _ANSWER_BYTES_MAX:
                    break
            return answer.status_code

    def _new_client(self) -> httpx.Client:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        return httpx.Client(
            transport=guarded_transport(verify=True, proxy=None, limits=limits),
            timeout=self._timeout_s,
            follow_redirects=False,
            trust_env=False,
        )

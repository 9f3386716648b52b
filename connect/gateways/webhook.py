"""An HTTP endpoint that takes JSON: the operator's for notifications, or one for rows of an output.

Rules of this file:
- A tenant may choose the address of an output. It is checked like those of catalogs: the host
  before each request, and the peer of each connection before the first byte is sent. It contains no
  login, and proxies of the node's environment are not used. The operator's own address has none of
  these limits.
- Redirects are not followed: the address and its authorization are for one server.
- A request ends in time, also if the server answers byte by byte. Only a small part of an answer is
  read.
- Only the thread of a request uses its connection, and closes it: a socket with TLS must not be
  closed while another thread is inside it.
- Errors contain neither the address nor the authorization. In logs they are masked in the spelling
  of the configuration and in that of the client.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx

from connect.backoff import Backoff, BackoffPolicy
from connect.clock import Clock
from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import answers_within
from connect.gateways.guarded_http import guarded_transport, limited_client
from connect.gateways.http_status import is_temporary
from connect.gateways.public_trust import public_trust
from connect.redaction.secret_values import KNOWN

WEBHOOK_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 2**10
_GRACE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """Where messages are sent.

    Attributes:
        url: ``http`` or ``https``; a secret, because many services put a token into it.
        authorization: value of the header ``Authorization``; None sends none.
        key: of the address in the configuration, for errors.
        is_of_operator: whether only the operator can choose the address.
    """

    url: str
    authorization: str | None
    key: str
    is_of_operator: bool


class Webhook:
    """Sends messages to one address.

    Args:
        address: where they are sent.
        clock: monotonic time.
        retries: pauses after failed attempts.
        timeout_s: of a request.

    Attributes:
        retry_at_ms: when the next attempt is due after the last one failed; monotonic clock.

    Raises:
        ConfigError: ``webhook``, the address is no HTTP address.
    """

    def __init__(
        self,
        address: WebhookAddress,
        clock: Clock,
        retries: BackoffPolicy,
        *,
        timeout_s: float = WEBHOOK_TIMEOUT_S,
    ) -> None:
        for secret in _secrets_of(address):
            KNOWN.add(secret)
        host = webhook_host(address.url, may_have_login=address.is_of_operator)
        if host is None:
            login = "" if address.is_of_operator else ", without a login"
            raise ConfigError(
                f"{address.key} must be http(s)://host[:port]/path{login}", code="webhook"
            )
        self._address, self._host = address, host
        self._clock = clock
        self._backoff = Backoff(retries)
        self._timeout_s = timeout_s
        self._headers = {"content-type": "application/json"}
        if address.authorization:
            self._headers["authorization"] = address.authorization
        self._client: httpx.Client | None = None
        self._thread: threading.Thread | None = None
        self.retry_at_ms = 0

    def post(self, body: bytes, idempotency_key: str | None = None) -> None:
        """Send a message once.

        Args:
            body: JSON.
            idempotency_key: equal for equal messages, so that the server can ignore a repetition.

        Raises:
            RetriableError: ``webhook_unavailable``, no answer in time, or the server is
                overloaded. The next attempt is due at ``retry_at_ms``.
            ConfigError: ``webhook_refused``, the server does not accept the message;
                ``host_refused``.
        """
        try:
            self._check(self._status(body, idempotency_key))
        except RetriableError:
            now_ms = self._clock.monotonic_ms()
            self.retry_at_ms = now_ms + (self._backoff.failed(now_ms) or 0)
            raise
        self._backoff.reset()

    def post_within(
        self,
        duration_ms: int,
        body: bytes,
        idempotency_key: str,
        wait: Callable[[int], bool],
    ) -> None:
        """Send a message, again and again until it is accepted or refused, or the time is over.

        Args:
            duration_ms: no attempt begins later than this.
            body: as in ``post``.
            idempotency_key: as in ``post``.
            wait: waits for so many milliseconds; returns whether another attempt may follow.

        Raises:
            RetriableError, ConfigError: as ``post``, of the last attempt.
        """
        self._backoff.reset()
        until_ms = self._clock.monotonic_ms() + duration_ms
        while True:
            try:
                self.post(body, idempotency_key)
            except RetriableError:
                pause_ms = self.retry_at_ms - self._clock.monotonic_ms()
                if self.retry_at_ms >= until_ms or not wait(max(0, pause_ms)):
                    raise
            else:
                return

    def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _check(self, status: int) -> None:
        key = self._address.key
        if is_temporary(status):
            raise RetriableError(
                f"the webhook of {key} answered with HTTP {status}", code="webhook_unavailable"
            )
        if status >= 300:
            raise ConfigError(
                f"the webhook of {key} answered with HTTP {status}; check the address, the "
                "authorization, and what the server accepts",
                code="webhook_refused",
            )

    def _status(self, body: bytes, idempotency_key: str | None) -> int:
        """Return the status of an answer, or raise within the time.

        Each operation of the connection ends with the time of the request. A name server may not:
        then the request and its client are left to their thread. Until that has ended, no other
        request begins.
        """
        if self._thread is not None and self._thread.is_alive():
            raise self._unanswered("the name of its host is not resolved")
        client, self._client = self._client or self._new_client(), None
        outcome: list[int | Exception] = []
        is_left = threading.Event()

        def call() -> None:
            try:
                with answers_within(self._timeout_s):
                    if not self._address.is_of_operator:
                        access_policy().check_host(self._host)  # resolves its name
                    outcome.append(self._request(client, body, idempotency_key))
            except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError, IcefloeError) as e:
                is_left.set()
                outcome.append(e)
            if is_left.is_set():
                client.close()

        self._thread = threading.Thread(target=call, name="webhook", daemon=True)
        self._thread.start()
        self._thread.join(self._timeout_s + _GRACE_S)
        reached = outcome[0] if outcome else TimeoutError()
        if isinstance(reached, int):
            self._client = client
            return reached
        is_left.set()
        if isinstance(reached, IcefloeError):
            raise reached
        # the text of the exception may contain the address
        raise self._unanswered(type(reached).__name__)

    def _unanswered(self, why: str) -> RetriableError:
        return RetriableError(
            f"the webhook of {self._address.key} does not answer: {why}", code="webhook_unavailable"
        )

    def _request(self, client: httpx.Client, body: bytes, idempotency_key: str | None) -> int:
        headers = dict(self._headers)
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        with client.stream("POST", self._address.url, content=body, headers=headers) as answer:
            size = 0
            for piece in answer.iter_raw():
                size += len(piece)
                if size > _ANSWER_BYTES_MAX:
                    break
            return answer.status_code

    def _new_client(self) -> httpx.Client:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        is_of_operator = self._address.is_of_operator
        client = httpx.Client(
            transport=None
            if is_of_operator
            else guarded_transport(verify=True, proxy=None, limits=limits),
            verify=public_trust(trust_env=is_of_operator),
            limits=limits,
            timeout=self._timeout_s,
            follow_redirects=False,
            trust_env=is_of_operator,
        )
        return limited_client(client) if is_of_operator else client


def webhook_host(url: str, *, may_have_login: bool = False) -> str | None:
    """Return the host of an address; None if it is no HTTP address."""
    try:
        parts = urlsplit(url)
        is_plain = not any(c <= " " or c in '\\"<>' for c in url)
        has_login = "@" in parts.netloc
        is_valid = parts.scheme in {"http", "https"} and is_plain and parts.port != 0
    except ValueError:
        return None
    is_allowed = is_valid and (may_have_login or not has_login)
    return parts.hostname if is_allowed and parts.hostname else None


def _secrets_of(address: WebhookAddress) -> Iterator[str]:
    """Yield every spelling of the address and of its credentials that a log line may have.

    A server may name its own host in another way, so path and query are secrets of their own.
    """
    yield address.url
    if address.authorization:
        yield address.authorization
    try:
        parts = urlsplit(address.url)
        sent = httpx.URL(address.url)
    except (ValueError, httpx.InvalidURL):
        return
    yield from (str(sent), sent.raw_path.decode("ascii", "replace"))
    yield f"{parts.path}?{parts.query}" if parts.query else parts.path
    if parts.password:
        password = unquote(parts.password)
        login = f"{unquote(parts.username or '')}:{password}"
        yield from (parts.password, password, base64.b64encode(login.encode()).decode())

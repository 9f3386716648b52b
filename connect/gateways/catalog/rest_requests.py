"""Requests of a REST catalog's client: prepared with little work, and answers read in part.

Rules of this file:
- A request equals the one that the session's own methods would send: headers, login, cookies,
  certificates and proxies are those of the session.
- What does not differ between two requests is derived once: the form of an address, and the
  settings that ``requests`` reads from the environment.
- Nothing is repeated, and no redirect is followed.
- No more of a body is kept than the policy of the process allows.

Source:
    requests 2.34 ``Session.prepare_request``, ``Session.merge_environment_settings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import response as rest_response
from requests import ConnectionError as RequestsConnectionError
from requests import HTTPError as RequestsHTTPError
from requests import PreparedRequest, Response, Session
from requests.cookies import get_cookie_header
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import HTTPError

from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import (
    AnswerLimitError,
    ValueCount,
    limited_pieces,
    too_large,
)

_PIECE_BYTES = 64 * 1024


class PreparedRequests:
    """Sends the frequent requests of one session. For one thread, as the session.

    Args:
        session: with its login and its adapters.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings: dict[str, Mapping[str, Any]] = {}

    def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Response:
        """Send a request; the answer's body is not read yet.

        Args:
            method: in capitals.
            url: with its query.
            body: of the request.
            headers: of this request, before the login; None leaves out one of the session.

        Raises:
            requests.RequestException: no answer.
        """
        session = self._session
        request = PreparedRequest()
        request.method = method
        request.url = exact = _requoted(url)
        request.headers = CaseInsensitiveDict(session.headers)
        for name, text in (headers or {}).items():
            if text is None:
                request.headers.pop(name, None)
            else:
                request.headers[name] = text
        request.body = body
        if body is not None:
            request.headers["Content-Length"] = str(len(body))
        if session.cookies and (cookie := get_cookie_header(session.cookies, request)):
            request.headers["Cookie"] = cookie
        request.hooks = {event: list(hooks) for event, hooks in session.hooks.items()}
        if callable(session.auth):
            request = session.auth(request)
        settings = self._settings_of(exact)
        return session.send(request, **settings, stream=True, allow_redirects=False)

    def _settings_of(self, url: str) -> Mapping[str, Any]:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        settings = self._settings.get(origin)
        if settings is None:
            merged = self._session.merge_environment_settings(url, {}, None, None, None)
            settings = {key: merged[key] for key in ("proxies", "verify", "cert")}
            self._settings[origin] = settings
        return settings


def body_of(response: Response) -> bytes:
    """Read the whole body of an answer.

    Raises:
        requests.ConnectionError: the answer ends early, or is not encoded as it says.
        AnswerLimitError: it is too large, or takes too long.
    """
    if _is_read(response):
        return response.content
    body = b"".join(_pieces(response))
    try:
        ValueCount(access_policy().answer_bytes_max).add(body)
    except AnswerLimitError:
        response.close()
        raise
    return body


def names(response: Response, texts: Iterable[bytes]) -> bool:
    """Read an answer to its end; return whether its body holds all of these texts.

    The body is not kept: it may have the whole history of a table.

    Raises:
        requests.ConnectionError, AnswerLimitError: as ``body_of``.
    """
    missing = set(texts)
    if _is_read(response):
        return all(text in response.content for text in missing)
    kept = max(map(len, missing), default=1) - 1
    piece = b""
    for more in _pieces(response):
        if missing:
            piece = piece[-kept:] + more if kept else more
            missing = {text for text in missing if text not in piece}
    return not missing


def _pieces(response: Response) -> Iterator[bytes]:
    """Yield the pieces of a body without its compression; raises as ``body_of``."""
    bytes_max = access_policy().answer_bytes_max
    read = partial(response.raw.read, _PIECE_BYTES, decode_content=True)
    try:
        if (response.raw.length_remaining or 0) > bytes_max:
            raise too_large(bytes_max)
        yield from limited_pieces(iter(read, b""), bytes_max)
    except AnswerLimitError:
        response.close()
        raise
    except (OSError, HTTPException, HTTPError) as error:
        response.close()
        raise RequestsConnectionError(f"the answer cannot be read: {error}") from error


def raise_for(response: Response, errors_by_status: Mapping[int, type[Exception]]) -> None:
    """Raise the error of an answer that is none of success, with the message of its body.

    Args:
        response: the answer.
        errors_by_status: errors that mean something else than in general.
    """
    try:
        response.raise_for_status()
    except RequestsHTTPError as error:
        of_status = dict(errors_by_status)
        rest_response._handle_non_200_response(error, of_status)  # noqa: SLF001 - reads the message


def _is_read(response: Response) -> bool:
    """Whether a hook of the session has read the body."""
    return bool(response._content_consumed)  # noqa: SLF001 - requests has no other sign


@lru_cache(maxsize=4_096)
def _requoted(url: str) -> str:
    request = PreparedRequest()
    request.prepare_url(url, None)
    assert request.url is not None
    return request.url

"""Maps errors of catalog clients to Icefloe's errors.

Rules of this file:
- One table for commits and one for everything else; both end in the careful answer: a commit is
  unknown, a request is retriable.
- The HTTP status decides where there is one: PyIceberg's classes lump statuses together.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as PyIcebergValidationError
from requests import RequestException

from connect.errors import (
    CommitConflict,
    CommitError,
    CommitRefused,
    CommitStateUnknown,
    ConfigError,
    IcefloeError,
    RetriableError,
)
from connect.gateways.access_policy import ANSWER_BYTES_MAX, ANSWER_MS_MAX
from connect.gateways.answer_limits import AnswerLimitError, answer_limit_in
from connect.gateways.storage.object_store import is_refusal, store_error_text
from connect.redaction.foreign_text import foreign_text

INVALID = "catalog_refused"
"""The code of a change that the catalog calls invalid."""
THROTTLED = "catalog_throttled"
UNREADABLE = "metadata_unreadable"
_MESSAGE_CHARACTERS_MAX = 500
# PyIceberg's texts for columns, and for elements of lists and maps
_UNKNOWN_TYPES = ("Unsupported field type", "Type not recognized")
_CODE_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (NoSuchTableError, "table_missing"),
    (NoSuchNamespaceError, "table_missing"),
    (UnauthorizedError, "unauthorized"),
    (AuthorizationExpiredError, "unauthorized"),
    (OAuthError, "unauthorized"),
    (ForbiddenError, "forbidden"),
    (TooManyRequestsError, THROTTLED),
    (BadRequestError, INVALID),
)
_CODE_BY_STATUS = {
    400: INVALID,
    401: "unauthorized",
    403: "forbidden",
    404: "table_missing",
    406: INVALID,
    413: INVALID,
    419: "unauthorized",
    422: INVALID,
    429: THROTTLED,
    501: INVALID,
}


def commit_error(error: Exception) -> CommitError:
    """What an exception of a commit means; anything not known to be an answer is unknown."""
    if limit := answer_limit_in(error):
        return CommitStateUnknown(f"the catalog's answer is not read: {limit.message}")
    message = _message(error)
    if isinstance(error, CommitFailedException) or _is_integrity_error(error):
        return CommitConflict(message)
    if code := _refusal(error):
        return CommitRefused(message, code=code, retry_after_s=_retry_after_s(error))
    if isinstance(error, NotImplementedError):
        return CommitRefused(message, code=INVALID)
    return CommitStateUnknown(message)


def request_error(error: Exception) -> IcefloeError:
    """What an exception of any other request means; anything not known may be tried again."""
    limit = answer_limit_in(error)
    return _request_error(error) if limit is None else _limit_error(limit)


def opening_error(error: Exception) -> IcefloeError:
    """What an exception of the first request to a REST catalog means, for its configuration."""
    mapped = request_error(error)
    if mapped.code not in {"table_missing", UNREADABLE}:
        return mapped
    status = http_status(error)
    answer = "no JSON of a catalog" if status in {None, 200} else f"HTTP {status}"
    return RetriableError(
        "what answers at iceberg.catalog.uri is no Iceberg REST catalog: it answers the request "
        f"for its configuration (/v1/config) with {answer}; check the address and its path",
        code="catalog_unavailable",
    )


def _request_error(error: Exception) -> IcefloeError:
    message = _message(error)
    code = _refusal(error)
    if code == THROTTLED:
        return RetriableError(message, code=code)
    if code:
        return CommitRefused(message, code=code)
    if isinstance(error, FileNotFoundError) and not is_refusal(error):
        return CommitRefused(message, code="metadata_missing")
    if any(text in str(error) for text in _UNKNOWN_TYPES):
        return CommitRefused(message, code="unsupported_type")
    if isinstance(error, NotImplementedError):
        return CommitRefused(message, code=INVALID)
    if isinstance(error, PydanticValidationError):  # its own text quotes what was read
        fields = [".".join(map(str, detail["loc"])) or "the whole" for detail in error.errors()]
        message = f"the table's metadata is not of the known form: {', '.join(fields[:5])}"
        return CommitRefused(message, code=UNREADABLE)
    if isinstance(error, PyIcebergValidationError):
        return CommitRefused(message, code=UNREADABLE)
    if isinstance(error, ImportError):
        return ConfigError(message, code="catalog_type")
    if is_of_store(error):
        return RetriableError(
            f"the object store of the catalog's files: {store_error_text(error)}",
            code="storage_unavailable",
        )
    return RetriableError(
        f"the catalog does not answer, see iceberg.catalog.*: {message}",
        code="catalog_unavailable",
    )


def _limit_error(limit: AnswerLimitError) -> IcefloeError:
    """What a catalog's answer beyond the limits means: a large one stays large."""
    if limit.is_size:
        return CommitRefused(
            f"the catalog's answer is not read: {limit.message}; expire snapshots of the table, or "
            f"ask the node's operator to raise {ANSWER_BYTES_MAX}",
            code="catalog_answer_too_large",
        )
    return RetriableError(
        f"the catalog's answer is not read: {limit.message}; check the catalog, or ask the node's "
        f"operator to raise {ANSWER_MS_MAX}",
        code="catalog_unavailable",
    )


def is_of_store(error: Exception) -> bool:
    """Whether a file system raised an error, and no client of a catalog.

    File systems raise ``OSError`` itself. The exceptions of ``requests`` derive from it.
    """
    return isinstance(error, OSError) and not isinstance(error, RequestException)


def _refusal(error: Exception) -> str | None:
    """The code of an answer after which nothing was changed, if the answer is correct."""
    status = http_status(error)
    if status is not None:
        return _CODE_BY_STATUS.get(status)
    for cls, code in _CODE_BY_CLASS:
        if isinstance(error, cls):
            return code
    return None


def http_status(error: BaseException) -> int | None:
    """The HTTP status behind a client's exception."""
    status = getattr(_response(error), "status_code", None)
    return status if isinstance(status, int) else None


def _response(error: BaseException) -> Any:
    responses = (getattr(e, "response", None) for e in (error, error.__cause__))
    return next((response for response in responses if response is not None), None)


def _retry_after_s(error: BaseException) -> int | None:
    """Seconds that an answer asks to wait for, at most an hour; a date is not understood."""
    headers = getattr(_response(error), "headers", {})
    text = str(headers.get("Retry-After", "")).strip()
    return min(int(text), 3_600) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _is_integrity_error(error: Exception) -> bool:
    return any(cls.__name__ == "IntegrityError" for cls in type(error).__mro__)


def _message(error: Exception) -> str:
    status = http_status(error)
    answer = f" (HTTP {status})" if status is not None else ""
    return foreign_text(error)[:_MESSAGE_CHARACTERS_MAX] + answer

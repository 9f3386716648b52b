"""Request bodies: JSON as Jackson reads it for Kafka Connect, strict where Jackson is.

Numbers and booleans become the text they were sent as, because configurations are maps of
strings. What Kafka answers with 500 is 400 here, with the same body shape.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NoReturn

from connect.rest.errors import ApiError


class NumberText(str):
    """A number as it was written."""

    __slots__ = ()


def parse_json(body: bytes) -> Any:
    """Read a body; an empty one is None, as null is.

    Raises:
        ApiError: 400, with the place where reading ended.
    """
    if not body.strip():
        return None
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(
            text, parse_int=NumberText, parse_float=NumberText, parse_constant=_no_constant
        )
        if "\\u" in text:  # half a surrogate pair could be stored, but never be sent again
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(400, "Malformed JSON: half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise ApiError(
            400, f"Malformed JSON: {error.msg}; line: {error.lineno}, column: {error.colno}"
        ) from None
    except UnicodeDecodeError as error:
        raise ApiError(400, f"Malformed JSON: not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"Malformed JSON: {error}") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def as_object(value: Any, what: str, known: Collection[str] | None = None) -> dict[str, Any]:
    """The value as an object with no other than the known fields.

    Raises:
        ApiError: 400, it is something else or has an unknown field.
    """
    if not isinstance(value, dict):
        raise ApiError(400, f"{what} must be a JSON object, not {_kind(value)}")
    if known is not None:
        for field in value:
            if field not in known:
                raise ApiError(
                    400, f'Unrecognized field "{field}" in {what}; known: {", ".join(known)}'
                )
    return value


def as_text(value: Any, what: str) -> str | None:
    """A scalar as text; null stays None.

    Raises:
        ApiError: 400, it is an object or a list.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    raise ApiError(400, f"{what} must be a string, not {_kind(value)}")


def as_config(value: Any, what: str = "the configuration") -> dict[str, str | None]:
    """An object of scalars as a map of strings; nulls stay.

    Raises:
        ApiError: 400, it is something else.
    """
    return {name: as_text(item, f'"{name}"') for name, item in as_object(value, what).items()}


def _kind(value: Any) -> str:
    if value is None:
        return "null or missing"
    if isinstance(value, NumberText):
        return "a number"
    names = {str: "a string", list: "a list", bool: "a boolean", dict: "an object"}
    return names.get(type(value), type(value).__name__)

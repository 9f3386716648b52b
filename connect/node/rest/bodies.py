"""Request bodies: JSON as Jackson reads it for Kafka Connect, strict where Jackson is.

Numbers and booleans become the text that was sent, because configurations are maps of strings.
A malformed body gets 400, where Kafka Connect answers some of them with 500.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from connect.config.size_limits import KEYS_MAX
from connect.node.rest.api_errors import ApiError
from connect.node.rest.models import RULE_BROKEN, NumberText

M = TypeVar("M", bound=BaseModel)


def parse_json(body: bytes) -> Any:
    """Read a body; an empty one is None, as null is.

    Raises:
        ApiError: 400, with the position of the error.
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


def read_model(model: type[M], content: bytes) -> M:
    """Read a body as a model.

    Raises:
        ApiError: 400, it is not JSON, or not valid; the message names the field.
    """
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ApiError(400, f"{_what(model)} must be a JSON object, not {_kind(value)}")
    if len(value) > KEYS_MAX:
        size = f"it has {len(value)} keys, more than {KEYS_MAX}"
        raise ApiError(400, f"{_what(model).capitalize()} is too large: {size}")
    try:
        return model.model_validate(value)
    except ValidationError as error:  # it lists all wrong fields; the models bound their number
        first_error = error.errors(include_url=False)[0]
        raise ApiError(400, _sentence(model, first_error)) from None


_EXPECTED = {
    "dict_type": "a JSON object",
    "model_type": "a JSON object",
    "list_type": "a list",
    "string_type": "a string",
    "bool_type": "true or false",
}


def _sentence(model: type[BaseModel], error: ErrorDetails) -> str:
    if error["type"] == RULE_BROKEN:
        return error["msg"]
    path = ".".join(map(str, error["loc"])) or _what(model)
    if error["type"] == "extra_forbidden":
        field_names = ", ".join(model.model_fields)
        return f'Unrecognized field "{path}" in {_what(model)}; known: {field_names}'
    if error["type"] == "missing":
        return f'"{path}" must be given'
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f'"{path}" is not valid: {error["msg"]}'
    return f'"{path}" must be {expected}, not {_kind(error["input"])}'


def _what(model: type[BaseModel]) -> str:
    return "the configuration" if issubclass(model, RootModel) else "the request"


def _kind(value: Any) -> str:
    if value is None:
        return "null or missing"
    if isinstance(value, NumberText):
        return "a number"
    names = {str: "a string", list: "a list", bool: "a boolean", dict: "an object"}
    return names.get(type(value), type(value).__name__)

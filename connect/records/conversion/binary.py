"""Conversion to binary, fixed and uuid columns."""

from __future__ import annotations

import binascii
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

from connect.model.records import Struct
from connect.records.conversion.conversion_failure import Unconvertible, wrong_type

_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_GEOMETRIES: Final = ({"wkb", "srid"}, {"x", "y", "wkb", "srid"})
_BYTES: Final = frozenset({bytes, str})
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def decode_base64(text: str, *, padding_optional: bool) -> bytes:
    """Decode base64 of the basic alphabet without line breaks.

    Raises:
        Unconvertible: bad_text.
    """
    try:
        raw = text.encode("ascii")
    except UnicodeEncodeError:
        raise Unconvertible("bad_text", "the text is not base64") from None
    bare = raw.rstrip(b"=")
    padded = bare + b"=" * (-len(bare) % 4)
    complete = raw == padded or (padding_optional and raw == bare)
    if not complete or len(bare) % 4 == 1 or not _BASE64.fullmatch(raw):
        raise Unconvertible("bad_text", "the text is not base64")
    return binascii.a2b_base64(padded)


def to_binary(value: Any) -> bytes:
    """Convert bytes, base64 text, or Debezium's geometry to its well-known binary form."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return decode_base64(value, padding_optional=True)
    fields = value.values if type(value) is Struct else value
    if type(fields) is dict and fields.keys() in _GEOMETRIES and type(fields["wkb"]) in _BYTES:
        return to_binary(fields["wkb"])
    raise wrong_type(value, "binary")


def fixed_converter(length: int) -> Callable[[Any], bytes]:
    """Build the converter of a ``fixed[length]`` column."""

    def to_fixed(value: Any) -> bytes:
        data = to_binary(value)
        if len(data) != length:
            raise Unconvertible("wrong_length", f"the column requires exactly {length} bytes")
        return data

    return to_fixed


def to_uuid(value: Any) -> bytes:
    """Convert a UUID or its 36-character text to 16 bytes."""
    if type(value) is str:
        if not _UUID.fullmatch(value):
            raise Unconvertible("bad_text", "the text is not a UUID")
        return bytes.fromhex(value.replace("-", ""))
    if type(value) is uuid.UUID:
        return value.bytes
    raise wrong_type(value, "uuid")

"""Converters of plain values: StringConverter, ByteArrayConverter and the numeric converters."""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Float32
from connect.records.converters.converter import Headers, Role, refusal

_OPTIONAL_STRING: Final = ConnectSchema("string", optional=True)
_OPTIONAL_BYTES: Final = ConnectSchema("bytes", optional=True)
# Java replaces an encoded surrogate with one U+FFFD, Python with three
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MARKS: Final = (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)
_REPLACEMENT: Final = "\ufffd".encode()


class StringConverter:
    """Converts text in the encoding ``converter.encoding`` (UTF-8). Bad bytes become U+FFFD."""

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        del role  # this converter does not reject records
        name = options.get("converter.encoding", "UTF-8")
        try:
            self._encoding = codecs.lookup(name).name
        except LookupError:
            raise ConfigError(
                f"converter.encoding {name!r} is unknown; set the name of a Java charset",
                code="converter_option",
            ) from None

    @property
    def is_utf8(self) -> bool:
        """Return whether the encoding is UTF-8."""
        return self._encoding == "utf-8"

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        del topic, headers
        return _OPTIONAL_STRING, None if data is None else self._decode(data)

    def _decode(self, data: bytes) -> str:
        if self._encoding == "utf-16" and data[:2] not in (
            codecs.BOM_UTF16_BE,
            codecs.BOM_UTF16_LE,
        ):
            return data.decode("utf-16-be", "replace")  # as in Java, without a byte order mark
        try:
            return data.decode(self._encoding)
        except UnicodeDecodeError:
            if self._encoding == "utf-8":
                data = _ENCODED_SURROGATE.sub(_REPLACEMENT, data)
            return data.decode(self._encoding, "replace")


class ByteArrayConverter:
    """Passes bytes unchanged."""

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        del options, role

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        del topic, headers
        return _OPTIONAL_BYTES, data


class NumericConverter:
    """Converts big-endian numbers of one size, and Kafka's one-byte booleans.

    Args:
        kind: the Connect type.
        layout: the format of the bytes, as for ``struct``.
        role: key, value or header.
    """

    def __init__(self, kind: str, layout: str, role: Role) -> None:
        self._schema = ConnectSchema(kind, optional=True)
        self._layout = struct.Struct(layout)
        self._role = role

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        del topic, headers
        if data is None:
            return self._schema, None
        kind = self._schema.type
        if len(data) != self._layout.size:
            raise refusal(
                self._role,
                "wrong_length",
                f"{kind} requires {self._layout.size} bytes, not {len(data)}",
            )
        value: Any = self._layout.unpack(data)[0]
        if kind == "boolean":
            if data[0] > 1:
                raise refusal(self._role, "bad_text", "the byte is neither 0 nor 1")
            return self._schema, data[0] == 1
        return self._schema, Float32(value) if kind == "float32" else value

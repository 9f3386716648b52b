"""Decompression of payloads that producers compressed: ``payload.compression=gzip``."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

from connect.errors import ConfigError
from connect.model.records import ConnectSchema
from connect.records.converters.converter import Converter, Headers, Role, refusal

OPTION: Final = "payload.compression"
INFLATED_BYTES_MAX: Final = 64 * 2**20
_FIRST_BYTES: Final = 2**11
_PIECE_BYTES_MAX: Final = 2**20
_GZIP: Final = 31  # zlib's window bits for the gzip format


class NotGzip(ValueError):  # noqa: N818 - internal; becomes a RecordError
    """The payload is not gzip, is truncated, or exceeds the size limit after decompression.

    Args:
        message: the reason.
        code: ``bad_gzip`` or ``too_large``.
    """

    def __init__(self, message: str, code: str = "bad_gzip") -> None:
        super().__init__(message)
        self.code = code


def inflate(data: bytes) -> bytes:
    """Decompress a gzip payload of one or more members.

    Raises:
        NotGzip: the payload cannot be decompressed.
    """
    parts: list[bytes] = []
    view, at, left = memoryview(data), 0, INFLATED_BYTES_MAX
    while at < len(data) or not parts:
        inflater, size = zlib.decompressobj(_GZIP), _FIRST_BYTES
        while not inflater.eof:
            if at == len(data):
                raise NotGzip("the gzip payload is truncated")
            piece = view[at : at + size]
            try:
                part = inflater.decompress(piece, left + 1)
            except zlib.error:
                raise NotGzip("the payload is not gzip") from None
            left -= len(part)
            if left < 0:
                raise NotGzip(
                    f"the decompressed payload has more than {INFLATED_BYTES_MAX} bytes",
                    "too_large",
                )
            # the rest is copied at the end of each member, and there may be millions
            at += len(piece) - len(inflater.unused_data)
            size = min(2 * size, _PIECE_BYTES_MAX)
            if part or not parts:
                parts.append(part)
    return b"".join(parts)


class DecompressingConverter:
    """A converter that decompresses payloads and passes them to another converter.

    Args:
        inner: converter of the decompressed payloads.
        role: key, value or header.
    """

    def __init__(self, inner: Converter, role: Role) -> None:
        self.inner = inner
        self._role = role

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        if data is not None:
            try:
                data = inflate(data)
            except NotGzip as error:
                raise refusal(self._role, error.code, str(error)) from None
        return self.inner.to_connect(topic, headers, data)


def is_gzip(options: Mapping[str, str]) -> bool:
    """Return whether the options declare compressed payloads.

    Raises:
        ConfigError: the option is neither none nor gzip.
    """
    kind = options.get(OPTION, "none").strip().lower()
    if kind not in ("none", "gzip"):
        raise ConfigError(f"{OPTION} must be none or gzip, not {kind!r}", code="converter_option")
    return kind == "gzip"


def with_decompression(inner: Converter, options: Mapping[str, str], role: Role) -> Converter:
    """Return the converter, wrapped in decompression if ``payload.compression`` is set."""
    return DecompressingConverter(inner, role) if is_gzip(options) else inner

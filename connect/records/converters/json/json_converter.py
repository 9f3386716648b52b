"""Kafka Connect's JsonConverter, with and without schemas."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from connect.errors import ConfigError, IcefloeError
from connect.model.records import ConnectSchema
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.converters.converter import Headers, Role, boolean_option, refusal
from connect.records.converters.json.json_schema import (
    ReadableSchema,
    plain_values,
    readable_schema,
)
from connect.records.converters.json.json_text import JsonReader, decode, skip
from connect.records.converters.payload_errors import NotJson, PayloadMismatch

_ENVELOPE: Final = frozenset({"schema", "payload"})
_SCHEMAS_KEPT: Final = 256
_PREFIXES_SIZE_MAX: Final = 32 * 2**20
_SCHEMA_KEY: Final = re.compile(r'[ \t\n\r]*\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD_NAME: Final = re.compile(r'"payload"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD_KEY: Final = re.compile(r"[ \t\n\r]*,[ \t\n\r]*" + _PAYLOAD_NAME.pattern)


class JsonConverter:
    """Converts JSON documents, or envelopes of schema and payload (``schemas.enable``).

    Args:
        options: ``schemas.enable``, ``schema.content``, ``replace.null.with.default``,
            ``decimal.format`` (ignored: both formats can be read).
        role: key, value or header.

    Raises:
        ConfigError: the value of an option is invalid.
    """

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        self._role: Role = role
        self._enveloped = boolean_option(options, "schemas.enable", default=True)
        self._defaults = boolean_option(options, "replace.null.with.default", default=True)
        if options.get("decimal.format", "BASE64").upper() not in ("BASE64", "NUMERIC"):
            raise ConfigError("decimal.format must be BASE64 or NUMERIC", code="converter_option")
        self._reader = JsonReader(decimals=self._enveloped)
        self._fixed: ReadableSchema | None = None
        content = options.get("schema.content")
        if content and self._enveloped:
            self._fixed = self._configured_schema(content)
        # schemas by the text of the envelope before the payload, which most records repeat
        self._known: OrderedDict[str, ReadableSchema | None] = OrderedDict()
        self._known_size = 0

    @property
    def is_enveloped(self) -> bool:
        """Return whether each record contains its schema."""
        return self._enveloped and self._fixed is None

    def _configured_schema(self, content: str) -> ReadableSchema | None:
        try:
            return readable_schema(
                JsonReader(decimals=True).read(content.encode()), default_for_null=self._defaults
            )
        except (NotJson, PayloadMismatch, Unconvertible) as error:
            raise ConfigError(f"schema.content: {error}", code="converter_option") from None

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        del topic, headers
        if data is None:
            return None, None
        try:
            if not self._enveloped:
                return None, self._reader.read(data)
            if self._fixed is not None:
                return self._fixed.schema, self._fixed.read(self._reader.read(data))
            return self._envelope(decode(data))
        except IcefloeError:
            raise
        except NotJson as error:
            why = f"not valid JSON: {error}" if error.code == "bad_json" else str(error)
            raise refusal(self._role, error.code, why) from None
        except Unconvertible as error:
            raise refusal(self._role, error.reason, error.message) from None
        except PayloadMismatch as error:
            raise refusal(self._role, "bad_envelope", str(error)) from None
        except RecursionError:
            raise refusal(
                self._role, "too_deep", "the value is nested too deeply for a schema"
            ) from None

    def envelope(self, data: bytes) -> tuple[bytes, ConnectSchema | None]:
        """Return the bytes of an envelope before its payload, and the schema in them.

        The bytes are empty if the envelope does not have the usual form.

        Args:
            data: an envelope in UTF-8 with the schema before the payload.
        """
        try:
            text = decode(data)
            self._envelope(text)
        except (IcefloeError, NotJson, Unconvertible, PayloadMismatch, RecursionError):
            if not data.startswith(b"{"):
                return b"", None  # the whole envelope has to be parsed
        for prefix in reversed(self._known):
            encoded = prefix.encode("utf-8", "replace")
            if data.startswith(encoded):
                readable = self._known[prefix]
                return encoded, None if readable is None else readable.schema
        return b"", None

    def _envelope(self, text: str) -> tuple[ConnectSchema | None, Any]:
        prefix = self._known_prefix(text)
        if prefix:
            payload, end = self._reader.value(text, skip(text, len(prefix)), level=1)
            if _is_over(text, end):
                return _read(self._known[prefix], payload)
        prefix, schema, payload = self._parts(text)
        readable = readable_schema(schema, default_for_null=self._defaults)
        if prefix:
            self._keep(prefix, readable)
        return _read(readable, payload)

    def _known_prefix(self, text: str) -> str:
        """Return the text before the payload if its schema is known, else ""."""
        if not self._known:
            return ""
        last = next(reversed(self._known))
        if text.startswith(last):
            return last
        match = _PAYLOAD_NAME.search(text)
        prefix = "" if match is None else text[: match.end()]
        if prefix not in self._known:
            return ""
        self._known.move_to_end(prefix)
        return prefix

    def _parts(self, text: str) -> tuple[str, Any, Any]:
        """Parse an envelope; return the text before its payload, the schema and the payload.

        The text is empty if the schema is not the first field.
        """
        match = _SCHEMA_KEY.match(text)
        if match is not None:
            schema, end = self._reader.value(text, match.end(), level=1)
            match = _PAYLOAD_KEY.match(text, end)
        if match is not None:
            payload, end = self._reader.value(text, match.end(), level=1)
            if _is_over(text, end):
                return text[: match.end()], schema, payload
        document = self._reader.read_text(text)
        if type(document) is not dict or document.keys() != _ENVELOPE:
            raise PayloadMismatch('an envelope must have the fields "schema" and "payload" only')
        return "", document["schema"], document["payload"]

    def _keep(self, prefix: str, readable: ReadableSchema | None) -> None:
        self._known[prefix] = readable
        self._known_size += len(prefix)
        while len(self._known) > _SCHEMAS_KEPT or (
            self._known_size > _PREFIXES_SIZE_MAX and len(self._known) > 1
        ):
            dropped, _ = self._known.popitem(last=False)
            self._known_size -= len(dropped)


def _is_over(text: str, end: int) -> bool:
    """Return whether an envelope ends after its payload."""
    return text[end:].strip(" \t\r\n") == "}"


def _read(readable: ReadableSchema | None, payload: Any) -> tuple[ConnectSchema | None, Any]:
    if readable is None:
        return None, plain_values(payload)
    return readable.schema, readable.read(payload)

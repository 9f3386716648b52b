"""Why the bytes of a message cannot be converted; converters turn these into record errors."""

from __future__ import annotations


class Malformed(ValueError):  # noqa: N818 - a result about a message
    """The bytes are no datum of the schema.

    Args:
        message: what is wrong, without content.
        code: bounded identifier.
    """

    def __init__(self, message: str, code: str = "bad_avro") -> None:
        super().__init__(message)
        self.code = code


class NotJson(ValueError):  # noqa: N818 - internal; becomes a RecordError
    """The bytes are not a JSON document within the bounds.

    Args:
        code: ``bad_json``, ``too_deep``, ``too_large``, ``out_of_range`` or ``lost_digits``.
        message: the reason, without the text.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PayloadMismatch(ValueError):  # noqa: N818 - internal; becomes a RecordError
    """A payload does not match its schema, or the schema is invalid."""

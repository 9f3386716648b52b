"""The parts that the Avro and Protobuf readers share: the refusal of a message, and decimals."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final

DECIMAL_BYTES_MAX: Final = 256
FLOAT: Final = struct.Struct("<f")


class Malformed(ValueError):  # noqa: N818 - a result about a message
    """The bytes are no datum of the schema.

    Args:
        message: what is wrong, without content.
        code: bounded identifier.
    """

    def __init__(self, message: str, code: str = "bad_avro") -> None:
        super().__init__(message)
        self.code = code


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return a decimal from its unscaled value in big-endian two's complement.

    Raises:
        Malformed: no bytes, or more than any column holds.
    """
    if not data or len(data) > DECIMAL_BYTES_MAX:
        raise Malformed(f"a decimal has no bytes or more than {DECIMAL_BYTES_MAX}")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))

"""Decimals and floats in Avro and Protobuf messages."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final

from connect.records.converters.payload_errors import Malformed

DECIMAL_BYTES_MAX: Final = 256
FLOAT: Final = struct.Struct("<f")


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

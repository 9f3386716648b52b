"""Numbers of transformations, as Java reads them."""

from __future__ import annotations

import numpy as np
import pytest

from connect.errors import RecordError
from connect.java_compat.java_numbers import float32_of
from connect.records.transforms.mask_field import masked
from connect.records.transforms.timestamp_converter import TimestampConversion

TIE = "1.000000059604644775390625"  # 1 + 2^-24, in the middle between two floats


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        (TIE, 0x3F800000),  # to the even one
        (TIE + "0" * 20 + "1", 0x3F800001),  # a double does not hold the last digit
        ("1.000000178813934326171874" + "9" * 20, 0x3F800001),
        ("-" + TIE + "0" * 20 + "1", 0xBF800001),
        ("16777217", 0x4B800000),
        ("16777219", 0x4B800002),
        ("1e39", 0x7F800000),
        ("-0.0", 0x80000000),
        ("0x1.000001p0", 0x3F800000),
        (" 1.5f ", 0x3FC00000),
    ],
)
def test_texts_are_rounded_once(text: str, bits: int) -> None:
    """The result equals ``Float.parseFloat``."""
    assert np.float32(float32_of(text)).view(np.uint32) == bits


@pytest.mark.parametrize(("kind", "number"), [("int8", 44), ("int16", 300), (None, 300)])
def test_a_mask_has_the_size_of_its_schema(kind: str | None, number: int) -> None:
    """A plain number, as for all values with a schema."""
    found = masked(7, "300.9", kind)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize("target", ["Timestamp", "unix", "string"])
def test_a_text_of_an_instant_beyond_64_bits_is_refused(target: str) -> None:
    """Java wraps it to another instant."""
    options = {"target.type": target, "format": "yy", "unix.precision": "milliseconds"}
    conversion = TimestampConversion(options)
    with pytest.raises(RecordError) as refusal:
        conversion.convert("2147483647")
    assert refusal.value.code == "out_of_range"

"""JSON within bounds: what the standard parser reads, and nothing that crashes."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.records.converters.json.json_text import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    NUMBER_DIGITS_MAX,
    JsonReader,
)
from connect.records.converters.payload_errors import NotJson

READER = JsonReader(decimals=False)
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(-1e15, 1e15, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-300)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 1]))
def test_the_parser_agrees_with_the_standard_parser(
    document: Any, ascii_only: bool, indent: Any
) -> None:
    """For a document within the limits."""
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert READER.read(text.encode("utf-8", "surrogatepass")) == json.loads(text)


@given(st.floats(2.0**53, 1.7e308), st.integers(17, 18))
def test_doubles_with_more_digits_than_needed_are_read(double: float, digits: int) -> None:
    """A double that was rounded to 17 or more digits is that double; Java 17 writes such texts."""
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(double))
    assert READER.read(f"{rounded:E}".encode()) == double


@given(DOCUMENTS)
def test_both_parsers_agree(document: Any) -> None:
    """The one without recursion and the fast one."""
    text = json.dumps(document)
    value, end = READER._without_recursion(text, 0)
    assert (value, end) == (json.loads(text), len(text))


@given(
    st.binary(max_size=40) | st.text('[]{}",:0123456789.eE+-tfn \\u', max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """For any bytes, both parsers return the same value or raise NotJson."""
    try:
        fast: Any = READER.read(data)
    except NotJson as error:
        fast = error.code
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        start = len(text) - len(text.lstrip(" \t\n\r"))
        value, end = READER._without_recursion(text, start)
        slow: Any = "bad_json" if text[end:].strip(" \t\n\r") else value
    except NotJson as error:
        slow = error.code
    if b"\x00" not in data[:4] and not data.startswith(b"\xef\xbb\xbf"):
        assert fast == slow or (fast != fast and slow != slow)  # noqa: PLR0124 - NaN


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_bounded(opening: bytes) -> None:
    """A thousand levels are accepted, more levels are an error without a stack overflow."""
    closing = b"]" if opening == b"[" else b"}"
    READER.read(opening * DEPTH_MAX + (b"" if opening == b"[" else b"1") + closing * DEPTH_MAX)
    for levels in (DEPTH_MAX + 1, 100_000):
        with pytest.raises(NotJson) as refused:
            READER.read(opening * levels)
        assert refused.value.code == "too_deep"


def test_brackets_in_texts_do_not_count_as_levels() -> None:
    """Only containers count as levels."""
    text = "[" * 5000 + '"\\'
    assert READER.read(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1" * (NUMBER_DIGITS_MAX + 1), "out_of_range"),
        ("1" * 100_000, "out_of_range"),
        ("[1e400]", "out_of_range"),
        ("[1e-400]", "lost_digits"),
        ("9007199254740993.0", "lost_digits"),
        ("NaN", "bad_json"),
        ("[-Infinity]", "bad_json"),
        ("", "bad_json"),
        ("  ", "bad_json"),
        ("1 2", "bad_json"),
        ('{"a":1}x', "bad_json"),
        ("[1,]", "bad_json"),
        ("01", "bad_json"),
    ],
)
def test_invalid_documents_are_refused(text: str, code: str) -> None:
    """Numbers out of range, invalid tokens and text after the document."""
    with pytest.raises(NotJson) as refused:
        READER.read(text.encode())
    assert refused.value.code == code


def test_whole_numbers_are_exact() -> None:
    """Digits are never lost up to the bound, independent of Python's limit for texts."""
    digits = "9" * NUMBER_DIGITS_MAX
    assert READER.read(f"[-{digits}]".encode()) == [-int(digits)]


def test_the_last_duplicate_wins() -> None:
    """As in Jackson."""
    assert READER.read(b'{"a":1,"b":0,"a":2}') == {"a": 2, "b": 0}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_encodings_are_detected(encoding: str) -> None:
    """UTF-16 and UTF-32 are detected with and without byte order mark."""
    assert READER.read('{"ä":1}'.encode(encoding)) == {"ä": 1}


def test_size_is_bounded() -> None:
    """A document above the size limit is rejected before it is decoded."""
    with pytest.raises(NotJson) as refused:
        READER.read(b" " * (DOCUMENT_BYTES_MAX + 1))
    assert refused.value.code == "too_large"

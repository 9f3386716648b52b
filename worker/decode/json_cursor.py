"""JSON documents of one shape, read with one cursor per row and one piece of all rows at a time.

Rules of this file:
- Each read is proven by its bytes: a cursor moves over text that was compared, over digits, and
  over strings up to their quote. A row holds any value if it was refused, or if its cursor is not
  at its end after the last piece.
- Cursors stay within the buffer for all documents: nothing matches its padding, and the quote in it
  ends a string that is open at the end.
- Documents with a backslash or a byte below a space are not scanned: see
  ``worker.decode.json_layout``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

ROUNDS_MAX: Final = 2_000
DIGITS_MAX: Final = 23
_FEW: Final = 4
_U: Final = np.uint64
_TOPS: Final = _U(0x8080808080808080)
_LOWS: Final = _U(0x7F7F7F7F7F7F7F7F)
_ONES: Final = _U(0x0101010101010101)
_ZEROS: Final = _U(0x3030303030303030)  # the digit
_QUOTES: Final = _U(0x2222222222222222)
_NO_DIGIT: Final = _U(0x7676767676767676)
_POWERS: Final = np.array([10**n for n in range(20)], np.uint64)


@dataclass(slots=True)
class Seen:
    """Names and nulls in documents, refused ones included.

    Attributes:
        names: of fields, at any depth.
        has_null: whether a field or item is null.
    """

    names: set[str] = field(default_factory=set)
    has_null: bool = False


class Pattern:
    """A text to compare with, eight bytes at a time."""

    __slots__ = ("size", "windows")

    def __init__(self, text: bytes) -> None:
        self.size = len(text)
        self.windows: list[tuple[int, np.uint64 | None, np.uint64]] = []
        for start in range(0, len(text), 8):
            piece = text[start : start + 8]
            mask = None if len(piece) == 8 else _U((1 << (8 * len(piece))) - 1)
            self.windows.append((start, mask, _U(int.from_bytes(piece, "little"))))


class JsonCursor:
    """The position in each row.

    Attributes:
        data: the bytes of all rows, padded at the end.
        windows: the 8 bytes that begin at each position, as numbers.
        at: next byte of each row.
        bad: rows that are refused; their cursors are parked where nothing matches.
        rounds: steps over items that are left, shared with the cursors made from this one.
        seen: names and nulls that were read, shared as well.
    """

    __slots__ = ("at", "bad", "data", "parked", "rounds", "seen", "windows")

    def __init__(self, data: Bytes, at: Ints, parked: int, seen: Seen) -> None:
        self.data = data
        self.parked = parked
        self.windows: Uint64s = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at = at
        self.bad: Mask = np.zeros(len(at), np.bool_)
        self.rounds = [ROUNDS_MAX]
        self.seen = seen

    @classmethod
    def over(cls, texts: pa.Array, ahead: int, seen: Seen) -> tuple[JsonCursor, Ints]:
        """Return a cursor over texts, and their ends.

        Args:
            texts: one chunk, no nulls, less than 2 GB.
            ahead: bytes of the longest pattern.
            seen: takes the names and nulls that are read.
        """
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        low, high = int(bounds[0]), int(bounds[-1])
        raw = bytes(0) if data is None else memoryview(data)[low:high]
        # the quote ends open strings, and no cursor can be at it
        padded = np.frombuffer(b"".join((raw, b'\0"', bytes(ahead + 64))), np.uint8)
        at = bounds.astype(np.int64) - low
        return cls(padded, at[:-1], high - low, seen), at[1:]

    def __len__(self) -> int:
        return len(self.at)

    def part(self, rows: Any) -> JsonCursor:
        """Return a cursor over some rows (a mask or positions)."""
        cursor = object.__new__(JsonCursor)
        cursor.data, cursor.windows, cursor.parked = self.data, self.windows, self.parked
        cursor.at, cursor.bad = self.at[rows], self.bad[rows]
        cursor.rounds, cursor.seen = self.rounds, self.seen
        return cursor

    def join(self, part: JsonCursor, rows: Any) -> None:
        """Take over the positions of a cursor over some rows."""
        self.at, self.bad = self.at.copy(), self.bad.copy()
        self.at[rows], self.bad[rows] = part.at, part.bad

    def refuse(self, rows: Mask) -> None:
        """Mark rows as bad."""
        if rows.any():
            self.bad = self.bad | rows
            self.at = np.where(self.bad, self.parked, self.at)

    def round(self) -> bool:
        """Use one of the steps that are left; return whether there was one."""
        self.rounds[0] -= 1
        return self.rounds[0] >= 0

    # -------------------------------------------------------------- pieces

    def byte(self) -> Bytes:
        """Return the next byte; does not move."""
        byte: Bytes = self.data[self.at]
        return byte

    def starts_with(self, pattern: Pattern) -> Mask:
        """Return the rows whose next bytes are these."""
        matching: Any = True
        for start, mask, value in pattern.windows:
            windows = self.windows[self.at + start if start else self.at]
            if mask is not None:
                windows &= mask
            matching = (windows == value) & matching
        same: Mask = matching
        return same

    def expect(self, byte: int, current: Bytes | None = None) -> None:
        """Move over a byte; rows with another one are refused."""
        is_such = (self.byte() if current is None else current) == byte
        if not is_such.all():
            self.refuse(~is_such)
        self.at = self.at + is_such

    def text(self) -> tuple[Ints, Ints]:
        """Return start and end of the text before the next quote; move over the quote, too."""
        start = self.at
        end = _quote(self.windows, start)
        self.at = np.where(self.bad, self.parked, end + 1) if self.bad.any() else end + 1
        return start, end

    def digits(self) -> tuple[Uint64s, Ints]:
        """Read a number of up to 19 digits; return it and the count of digits.

        With more digits the number is meaningless. Rows with more than ``DIGITS_MAX`` are refused.
        """
        value, count = _eight(self.windows, self.at)
        more = count == 8
        if more.any():
            rows: Any = slice(None) if more.all() else np.flatnonzero(more)
            for _ in range(2):
                low, fresh = _eight(self.windows, self.at[rows] + count[rows])
                value[rows] = value[rows] * _POWERS[fresh] + low
                count[rows] += fresh
                left = fresh == 8
                if not left.any():
                    break
                rows = np.arange(len(self))[rows][left]
            long = count > DIGITS_MAX
            if long.any():
                self.refuse(long)
        self.at = self.at + count
        return value, count


def _quote(windows: Uint64s, at: Ints) -> Ints:
    """Return the next quote from each position."""
    while True:
        difference = windows[at] ^ _QUOTES
        stops = (difference - _ONES) & ~difference & _TOPS
        bits = np.bitwise_count((stops - _U(1)) & ~stops)  # before the first stop
        at = at + (bits >> 3)
        more = bits == 64
        left = np.count_nonzero(more)
        if not left:
            return at
        if left * _FEW < len(at):
            rows = np.flatnonzero(more)
            at[rows] = _quote(windows, at[rows])
            return at


def _eight(windows: Uint64s, at: Ints) -> tuple[Uint64s, Ints]:
    """Return the number in up to eight digits at each position, and their count."""
    digits = windows[at] ^ _ZEROS  # a digit's byte is its value
    stops = (((digits & _LOWS) + _NO_DIGIT) | digits) & _TOPS
    bits = np.bitwise_count((stops - _U(1)) & ~stops) & np.uint8(0xF8)  # of bytes before it
    value = digits << (np.uint8(64) - bits).astype(np.uint64)
    value = (value * _U(10) + (value >> _U(8))) & _U(0x00FF00FF00FF00FF)
    value = (value * _U(100) + (value >> _U(16))) & _U(0x0000FFFF0000FFFF)
    value = (value * _U(10_000) + (value >> _U(32))) & _U(0xFFFFFFFF)
    return value, (bits >> 3).astype(np.int64)

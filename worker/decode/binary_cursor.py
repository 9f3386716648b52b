"""Binary messages of one schema, read with one cursor per row and one field of all rows at a time.

Rules of this file:
- Each row has an end. A value that reaches beyond it, or is malformed, marks the row as bad, and
  its cursor stays within the buffer. Bad rows hold any value; the record path takes them.
- The bytes and ``ROUNDS_MAX`` steps over items bound the work. Rows with more items go to the
  record path, too.
- Starts of values ascend from row to row, so texts become Arrow arrays without a loop over rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

ROUNDS_MAX: Final = 2_000
PADDING: Final = bytes(32)
_TOPS: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)
_SEVEN_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)


class BinaryCursor:
    """The position in each row.

    Attributes:
        data: the bytes of all rows, padded at both ends.
        windows: the 8 bytes that begin at each position, as numbers.
        at: next byte of each row.
        end: first byte behind each row.
        bad: rows that the record path must read.
        rounds: steps over items that are left, shared with the cursors made from this one.
    """

    __slots__ = ("at", "bad", "data", "end", "rounds", "windows")

    def __init__(self, data: npt.NDArray[np.uint8], at: Ints, end: Ints, rounds: list[int]) -> None:
        self.data = data
        self.windows: Uint64s = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at = at
        self.end = end
        self.bad: Mask = np.zeros(len(at), np.bool_)
        self.rounds = rounds

    @classmethod
    def over(cls, values: pa.Array, skip: int | Ints) -> BinaryCursor:
        """Return a cursor over binary values.

        Args:
            values: one chunk, no nulls, less than 2 GB.
            skip: bytes to pass over at the start of each; at most its length.
        """
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        low, high = int(bounds[0]), int(bounds[-1])
        raw = bytes(0) if data is None else memoryview(data)[low:high]
        padded = np.frombuffer(b"".join((PADDING, raw, PADDING)), np.uint8)
        at = bounds.astype(np.int64) + (len(PADDING) - low)
        return cls(padded, at[:-1] + skip, at[1:], [ROUNDS_MAX])

    def __len__(self) -> int:
        return len(self.at)

    def part(self, rows: Any, end: Ints | None = None) -> BinaryCursor:
        """Return a cursor over some rows (a mask or positions), perhaps with nearer ends."""
        cursor = object.__new__(BinaryCursor)
        cursor.data, cursor.windows, cursor.rounds = self.data, self.windows, self.rounds
        cursor.at = self.at[rows]
        cursor.end = self.end[rows] if end is None else end
        cursor.bad = self.bad[rows]
        return cursor

    def join(self, part: BinaryCursor, rows: Any) -> None:
        """Take over the positions of a cursor over some rows."""
        self.at[rows] = part.at
        self.bad[rows] = part.bad

    def move(self, size: Any) -> None:
        """Pass over bytes; rows that have fewer become bad."""
        self.at = self.at + size
        over = self.at > self.end
        if over.any():
            self.refuse(over)

    def refuse(self, rows: Mask) -> None:
        """Mark rows as bad and keep their cursors at the end."""
        self.bad = self.bad | rows
        self.at = np.where(self.bad, self.end, self.at)

    def round(self) -> bool:
        """Use one of the steps that are left; return whether there was one."""
        self.rounds[0] -= 1
        return self.rounds[0] >= 0

    # -------------------------------------------------------------- values

    def unsigned(self) -> Uint64s:
        """Read a varint of up to 64 bits."""
        windows = self.windows[self.at]
        if not (windows & np.uint64(0x80)).any():
            self.move(1)
            short: Uint64s = windows & np.uint64(0x7F)
            return short
        stops = ~windows & _TOPS
        lowest = stops & (~stops + _ONE)
        mask = lowest ^ (lowest - _ONE)  # all ones without a stop: 8 bytes and more
        sizes = (np.bitwise_count(mask) >> 3).astype(np.int64)
        value = _compressed(windows & mask & _SEVEN_BITS)
        long = stops == 0
        if long.any():
            rows = np.flatnonzero(long)
            rest = self.windows[np.minimum(self.at[rows] + 8, len(self.windows) - 1)]
            ninth, tenth = rest & np.uint64(0xFF), (rest >> np.uint64(8)) & np.uint64(0xFF)
            is_ten = ninth >= 0x80
            value[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            value[rows] |= np.where(is_ten, tenth, 0).astype(np.uint64) << np.uint64(63)
            sizes[rows] = np.where(is_ten, 10, 9)
            wrong = is_ten & (tenth > 1)
            if wrong.any():
                bad = np.zeros(len(self), np.bool_)
                bad[rows[wrong]] = True
                self.refuse(bad)
        self.move(sizes)
        return value

    def signed(self) -> Ints:
        """Read a zig-zag varint of up to 64 bits."""
        value = self.unsigned()
        plain: Ints = ((value >> _ONE) ^ (np.uint64(0) - (value & _ONE))).view(np.int64)
        return plain

    def bytes(self, size: Any) -> tuple[Ints, Ints]:
        """Return starts and ends of values of known sizes."""
        wrong = (size < 0) | (size > self.end - self.at)
        if np.any(wrong):
            self.refuse(np.broadcast_to(wrong, self.at.shape))
            size = np.where(self.bad, 0, size)
        start = self.at
        self.at = start + size
        return start, self.at.copy()  # ``join`` writes into the cursor's arrays

    def little_endian(self, size: int) -> Uint64s:
        """Read a little-endian number of 4 or 8 bytes."""
        windows = self.windows[self.at]
        self.move(size)
        return windows if size == 8 else windows & np.uint64(0xFFFFFFFF)

    def byte(self) -> npt.NDArray[np.uint8]:
        """Read one byte."""
        byte: npt.NDArray[np.uint8] = self.data[self.at]
        self.move(1)
        return byte


def _compressed(windows: Uint64s) -> Uint64s:
    """Return the low seven bits of each of eight bytes as one number."""
    u = np.uint64
    windows = (windows & u(0x007F007F007F007F)) | ((windows & u(0x7F007F007F007F00)) >> u(1))
    windows = (windows & u(0x00003FFF00003FFF)) | ((windows & u(0x3FFF00003FFF0000)) >> u(2))
    return (windows & u(0x000000000FFFFFFF)) | ((windows & u(0x0FFFFFFF00000000)) >> u(4))

"""Messages with bytes changed."""

from __future__ import annotations

import random


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with something wrong, perhaps."""
    if not data or chance.random() < 0.7:
        return data
    pick = chance.random()
    place = chance.randrange(len(data))
    if pick < 0.4:
        return data[:place]
    if pick < 0.8:
        return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    return data + chance.randbytes(3)

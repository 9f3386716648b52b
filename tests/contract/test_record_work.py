"""What records cost, counted: the work that decides how many a core can take."""

from __future__ import annotations

import pytest

from tests.bench.streams import STREAMS, batches, measure

RECORDS = 600


@pytest.mark.parametrize("name", ["plain", "numeric", "types"])
def test_no_record_of_common_streams_takes_the_record_path(name: str) -> None:
    """Also with bytes, decimals, 32-bit floats, and structs and lists of them."""
    stream = STREAMS[name]
    _, rows, alone = measure(stream, list(batches(stream, RECORDS)))
    assert (rows, alone) == (RECORDS, 0)

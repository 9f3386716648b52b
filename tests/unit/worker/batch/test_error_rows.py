"""Which errors of a Spark task mean an outage."""

from __future__ import annotations

from connect.errors import RetriableError
from connect.records.converters.custom_function import UNAVAILABLE
from worker.batch.error_rows import is_converter_outage


def test_the_outage_of_a_users_converter_repeats_the_batch() -> None:
    """The driver imports no converters before Spark starts, so it has the code itself."""
    assert is_converter_outage(RetriableError("away", code=UNAVAILABLE))
    assert not is_converter_outage(RetriableError("away", code="broker_unavailable"))

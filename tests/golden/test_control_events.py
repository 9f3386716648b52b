"""Our codec against the recordings of Iceberg's own classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden import control_events_suite as suite

CASES = suite.cases()


@pytest.mark.parametrize(
    "compare", [compare for _, compare in CASES], ids=[name for name, _ in CASES]
)
def test_every_recorded_event_is_read_and_written_as_in_java(
    compare: Callable[[], suite.Result],
) -> None:
    """Or it differs by a written rule."""
    result = compare()
    assert result.verdict != "failing", result.detail


def test_the_folder_is_not_empty() -> None:
    """A wrong folder would agree with everything."""
    agreed, _, failing = suite.run()
    assert agreed > 0
    assert not failing

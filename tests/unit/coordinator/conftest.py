"""Fixtures of tests that drive the kernel."""

from __future__ import annotations

import pytest

from tests.support.kernel_driver import P0, P1, Driver


@pytest.fixture
def driver() -> Driver:
    """A kernel whose layout has two partitions."""
    d = Driver()
    d.layout(P0, P1)
    return d

"""Marks of test modules that run Spark in the process of the tests."""

from __future__ import annotations

from typing import Final

import pytest

SPARK_MARKS: Final = (
    pytest.mark.spark,
    # pyspark leaves the socket of a collected result to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
)

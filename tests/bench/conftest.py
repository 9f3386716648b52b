"""Output of the benchmarks of a running stack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def measurements(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Figures by name; printed at the end and written to ``REPORT`` of the module."""
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    yield figures
    report = request.module.REPORT
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps(figures, indent=2) + "\n")
    print()
    for name, value in figures.items():
        print(f"{name:32} {value}")

"""Connectors of the matrix, created through the REST API of either side."""

from __future__ import annotations

import time
from collections.abc import Mapping

import httpx

LIMIT_S = 600.0


def create(api: str, name: str, config: Mapping[str, str]) -> None:
    """Create a connector; retry while the worker is not ready."""
    while True:
        answer = httpx.post(
            f"{api}/connectors", json={"name": name, "config": dict(config)}, timeout=60
        )
        if answer.status_code == httpx.codes.CREATED:
            return
        assert answer.status_code >= httpx.codes.CONFLICT, answer.text
        time.sleep(0.2)  # a Connect worker that rebalances answers 409


def wait_for_lag(api: str, name: str, records: int) -> None:
    """Wait until so many records are read and none waits for a file or a commit."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        lag = httpx.get(f"{api}/icefloe/v1/connectors/{name}/lag", timeout=60).json()
        read = sum(partition["committed_offset"] or 0 for partition in lag.get("partitions", ()))
        if read == records and not lag["not_in_files"] and not lag["in_files_not_committed"]:
            return
        check_tasks(api, name)
        time.sleep(0.25)
    raise TimeoutError(f"{name}: {lag}")


def check_tasks(api: str, name: str) -> None:
    """Fail with the trace of a task that has failed."""
    status = httpx.get(f"{api}/connectors/{name}/status", timeout=60).json()
    failed = [t for t in status.get("tasks", []) if t["state"] == "FAILED"]
    assert not failed, failed[0].get("trace", "")[:3_000]

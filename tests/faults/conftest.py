"""One stack for all fault tests that leave it running."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from tests.faults.payments_stack import PaymentsStack, connector
from tests.faults.shared_stack import (
    INTERVAL_MS,
    NODE_PROPERTIES,
    RECORDS,
    RECORDS_PER_S,
    WAREHOUSE_MB,
    SharedStack,
)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStack]:
    """A stack whose connector reads topics by a regex: two tasks, some records committed."""
    folder, armed = tmp_path_factory.mktemp("stack"), tmp_path_factory.mktemp("armed")
    config = connector(**{"iceberg.control.commit.interval-ms": str(INTERVAL_MS)})
    del config["topics"]
    config["topics.regex"] = "payments(-day-.*)?"
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    is_small = _mount(warehouse)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
            run = PaymentsStack(Stack(folder, node_properties=NODE_PROPERTIES))
            try:
                run.start(config)
                shared = SharedStack(run, run.producer(RECORDS_PER_S), config, armed, is_small)
                shared.producer.start(RECORDS, RECORDS)
                shared.producer.finish()
                run.wait_until_committed(shared.producer.rows)
                yield shared
            finally:
                run.close()
    finally:
        if is_small:
            subprocess.run(["umount", "-l", warehouse], check=False)


def _mount(folder: Path) -> bool:
    """Mount a small file system on the folder; return whether that was permitted (root)."""
    options = f"size={WAREHOUSE_MB}m"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0

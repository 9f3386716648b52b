"""One stack for the faults that leave it standing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from tests.faults.arena import (
    INTERVAL_MS,
    NODE_PROPERTIES,
    RECORDS,
    RECORDS_PER_S,
    WAREHOUSE_MB,
    Arena,
)
from tests.faults.chaos import Field, connector


@pytest.fixture(scope="session")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A stack whose connector follows a regex, with two tasks and some records committed."""
    folder, armed = tmp_path_factory.mktemp("arena"), tmp_path_factory.mktemp("armed")
    config = connector(**{"iceberg.control.commit.interval-ms": str(INTERVAL_MS)})
    del config["topics"]
    config["topics.regex"] = "payments(-day-.*)?"
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    is_small = _mount(warehouse)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
            run = Field(Stack(folder, node_properties=NODE_PROPERTIES))
            try:
                run.start(config)
                made = Arena(run, run.production(RECORDS_PER_S), config, armed, is_small)
                made.production.start(RECORDS, RECORDS)
                made.production.finish()
                run.wait_until_committed(made.production.rows)
                yield made
            finally:
                run.close()
    finally:
        if is_small:
            subprocess.run(["umount", "-l", warehouse], check=False)


def _mount(folder: Path) -> bool:
    """Whether the folder has become a small file system; only root may do that."""
    options = f"size={WAREHOUSE_MB}m"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0

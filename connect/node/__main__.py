"""``python -m connect.node --properties FILE``: one node, the process of ``icefloe node``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from connect.errors import IcefloeError
from connect.node.node_start import run_node


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m connect.node", description="Run one node.")
    parser.add_argument("--properties", type=Path, help="node properties file")
    chosen = parser.parse_args(arguments)
    try:
        return run_node(chosen.properties)
    except IcefloeError as e:
        print(f"error: {e}", file=sys.stderr)  # noqa: T201 - for the process that started the node
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a job that still waits for the broker must not hold the exit up

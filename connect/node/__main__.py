"""``python -m connect.node --properties FILE``: one node."""

from __future__ import annotations

import os
import sys

from connect.node.main import main

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a job that still waits for the broker must not hold the exit up

"""Ends the process of a job with the job's exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from connect.cli.terminal import error
from connect.errors import IcefloeError


def run_and_exit(run: Callable[[], int]) -> NoReturn:
    """Run a job, print its error, and end the process with its exit status.

    Args:
        run: returns the exit status, or raises an ``IcefloeError``.
    """
    try:
        status = run()
    except IcefloeError as e:
        error(str(e))
        status = e.exit_status
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a job that still waits for the broker must not delay the exit

"""The harness of the faults itself: it does not wait for what cannot come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from connect.processes.child_process import ChildProcess
from tests.faults.chaos import Field


def test_a_node_that_ended_by_itself_is_named_at_once(tmp_path: Path) -> None:
    """The error has its exit status and the end of its log, long before the wait times out."""
    stack = Stack(tmp_path)
    code = "import sys; print('an assertion failed'); sys.exit(3)"
    stack._node = ChildProcess("node", [sys.executable, "-c", code], log_file=stack.node_log_file)
    with pytest.raises(AssertionError, match=r"node ended with status 3(.|\n)*assertion failed"):
        Field(stack).wait_until(lambda: None, "a node to kill", wait_s=3_600)


def test_what_was_waited_for_in_vain_is_named(tmp_path: Path) -> None:
    """After the time, with the ends of all logs."""
    with pytest.raises(AssertionError, match=r"waited 0 s in vain for a first commit\n"):
        Field(Stack(tmp_path)).wait_until(lambda: None, "a first commit", wait_s=0)

"""The stack of the fault tests reports a process that has ended, and a wait that times out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from connect.processes.child_process import ChildProcess
from tests.faults.payments_stack import PaymentsStack


def test_a_node_that_ended_by_itself_is_named_at_once(tmp_path: Path) -> None:
    """The error has its exit status and the end of its log, long before the wait times out."""
    stack = Stack(tmp_path)
    code = "import sys; print('an assertion failed'); sys.exit(3)"
    stack._node = ChildProcess("node", [sys.executable, "-c", code], log_file=stack.node_log_file)
    with pytest.raises(AssertionError, match=r"node ended with status 3(.|\n)*assertion failed"):
        PaymentsStack(stack).wait_until(lambda: None, "a node to kill", wait_s=3_600)


def test_a_wait_that_times_out_is_named(tmp_path: Path) -> None:
    """The error has the ends of all logs."""
    with pytest.raises(AssertionError, match=r"waited 0 s for a first commit\n"):
        PaymentsStack(Stack(tmp_path)).wait_until(lambda: None, "a first commit", wait_s=0)

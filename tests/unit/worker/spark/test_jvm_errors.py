"""What the JVM of Spark writes to standard error."""

from __future__ import annotations

import os

import pytest

from worker.spark import jvm

NOTICE = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


def test_all_but_the_notice_of_the_module_is_copied(capfd: pytest.CaptureFixture[str]) -> None:
    """In order, also the last line of a JVM that was killed in the middle of it."""
    ours, theirs = os.pipe()
    os.write(theirs, NOTICE + b"ERROR a\n" + NOTICE + b"\xff\n# A fatal error")
    os.close(theirs)
    jvm._copy(ours)
    assert capfd.readouterr().err.splitlines() == ["ERROR a", "\ufffd", "# A fatal error"]

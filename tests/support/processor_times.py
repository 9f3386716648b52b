"""A plugin of pytest: the processor time of each test file, with its child processes.

``.venv/bin/pytest -p tests.support.processor_times --processor-times 20 tests/e2e`` prints the 20
files and tests that use most, and the total. Of tests that wait, the duration says little: other
tests use the time. Their processor time is what the suite takes.

Rules of this file:
- A test has the time that this process and its descendants use from the end of the test before.
  So the first test that uses a session fixture has the time of the fixture's start.
- The time of a process counts when the process that started it has waited for it. That of an orphan
  is lost.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

# fields of /proc/PID/stat after the name: utime, stime, cutime and cstime
_USED = slice(11, 15)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("processor times")
    group.addoption("--processor-times", type=int, default=0, help="number of files to show")


def pytest_configure(config: pytest.Config) -> None:
    """Measure if it is wanted."""
    if config.getoption("--processor-times"):
        config.pluginmanager.register(ProcessorTimes(config.getoption("--processor-times")))


class ProcessorTimes:
    """The measured times of a run.

    Args:
        count: how many files and tests the summary shows.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._last_s = used_s(os.getpid())
        self._of_tests: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        """Leave the imports of the test files to the collection."""
        self._add("collection")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Give a test what was used since the one before."""
        self._add(nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the largest ones."""
        self._add("the end of session fixtures")
        of_files: defaultdict[str, float] = defaultdict(float)
        for test, taken_s in self._of_tests.items():
            of_files[test.partition("::")[0]] += taken_s
        total_s = sum(self._of_tests.values())
        terminalreporter.section(f"processor time: {total_s:.0f} s")
        for times in (of_files, self._of_tests):
            largest = sorted(times.items(), key=lambda each: -each[1])[: self._count]
            for name, taken_s in largest:
                terminalreporter.write_line(f"{taken_s:8.1f} s  {name}")
            terminalreporter.write_line("")

    def _add(self, name: str) -> None:
        now_s = used_s(os.getpid())
        self._of_tests[name] += max(now_s - self._last_s, 0)
        self._last_s = now_s


def used_s(process: int) -> float:
    """Return the processor time of a process, its living descendants and those it waited for."""
    used_ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended: its parent's time has it
        number = int(file.parent.name)
        used_ticks[number] = sum(map(int, fields[_USED]))
        parents[number] = int(fields[1])
    return sum(
        ticks for each, ticks in used_ticks.items() if _descends(each, process, parents)
    ) / os.sysconf("SC_CLK_TCK")


def _descends(process: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while process != ancestor and process in parents:
        process = parents[process]
    return process == ancestor

"""Parallel runs of pytest: ``python -m tests.lanes (suite|unit) [ARGUMENTS]``.

Many tests wait for brokers, nodes and tables. A core is then idle, and other tests can use it.
``suite`` is the default suite; ``unit`` is the unit tests in two halves.

Rules of this file:
- A lane is one run of pytest. Each lane has its own session fixtures; lanes share only the machine.
- The lanes of a folder in ``SHARED`` share its files: each takes the next file when it has ended
  one. See ``tests/support/file_sharing.py``. For a folder in ``ONCE`` all files with the same stack
  are in one lane.
- At most ``LANES_MAX`` lanes run at the same time. The others start in order when one ends.
- Folders without a lane of their own are in the lanes of ``REST``, which share them. Their tests
  compute and do not wait. They run from the beginning, with low priority: they take the time of
  idle cores. There are as many as cores, so that no core is idle while tests are left.
- The report of a lane has its processor time. A test that waits is cheap, also a long one; see
  ``tests/support/processor_times.py``.
- The output of a lane is printed when the lane ends, that of failed lanes last. So the output ends
  with the summary of a failure, if there is one.
"""

from __future__ import annotations

import compileall
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import class_archives
from tests.support.class_archives import OPTIONS, archive_options

TESTS = Path(__file__).parent
# folder -> session fixtures that take long to start; the second lane does not begin with them
SHARED = {
    "contract": "",
    "e2e": "running",
    "integration": "spark_session",
}
ONCE = {"e2e", "integration"}  # a start of these fixtures takes more than the other lane saves
# lanes in the order of their start: those with most work first. A lane of the largest folder starts
# whenever another folder has ended: its lanes end together
WAITING = (
    *("integration-1", "e2e-1", "contract-1", "e2e-2"),
    *("integration-2", "attack", "contract-2"),
)
REST = ("rest-1", "rest-2")
LANES_MAX = 6  # with more on two cores, waits within a test become long
LOW_PRIORITY = 5  # added to the niceness
# C1 alone: a JVM of a test ends before C2's code pays. It takes a third of their processor time.
# Classes of jars are not verified: that takes a sixth of a start without a class archive
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
COMPILED = ("connect", "control_schemas", "coordinator", "worker", "tests/support")
REPORTS = Path("build")
REPORT_EVERY_S = 60
NOTHING_SELECTED = 5
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


@dataclass(eq=False)
class Lane:
    """One run of pytest.

    Attributes:
        name: of the lane.
        folders: folders or files to run.
        arguments: of pytest, after the folders.
        niceness: added to the niceness of this process.
    """

    name: str
    folders: Sequence[str]
    arguments: Sequence[str]
    niceness: int = 0
    process: subprocess.Popen[bytes] = field(init=False)
    started_s: float = field(init=False)
    ended_s: float = field(init=False)
    used_s: float = field(init=False)

    def start(self) -> None:
        """Start the run; its output goes to a file."""
        self.started_s = time.monotonic()
        REPORTS.mkdir(exist_ok=True)
        cache = f"cache_dir=.pytest_cache/{self.name}"
        command = [sys.executable, "-m", "pytest", *self.folders, "-o", cache, *self.arguments]
        environ = {OPTIONS: f"{JAVA_OPTIONS} {archive_options()}", **os.environ}
        # without files of byte code each process compiles the project's modules, for half a second
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.report.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environ
            )
        if self.niceness:
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, self.process.pid, own + self.niceness)

    def has_ended(self) -> bool:
        """Whether the run has ended; its times are then known."""
        before_s = _waited_for_s()
        if self.process.poll() is None:
            return False
        self.ended_s = time.monotonic()
        self.used_s = _waited_for_s() - before_s
        return True

    @property
    def report(self) -> Path:
        """The file with its output."""
        return REPORTS / f"tests-{self.name}.txt"

    @property
    def is_good(self) -> bool:
        """Whether no test failed; only for a lane that has ended."""
        return self.process.returncode in {0, NOTHING_SELECTED}

    def progress(self) -> str:
        """Return the percentage of its tests that have run."""
        found = _PERCENT.findall(self.report.read_bytes())
        return f"{self.name} {int(found[-1]) if found else 0} %"

    def show(self) -> None:
        """Print its output."""
        took_s = self.ended_s - self.started_s
        used = f"processor time {self.used_s:.0f} s"
        print(f"\n{self.name} lane: {took_s:.0f} s, {used}", flush=True)
        sys.stdout.buffer.write(self.report.read_bytes())
        sys.stdout.flush()


def _waited_for_s() -> float:
    """Return the processor time of all ended processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lanes(arguments: Sequence[str], taken: Path) -> list[Lane]:
    """Return the lanes of the suite; together they contain every folder with tests.

    Args:
        arguments: of pytest.
        taken: an empty folder, in which lanes note the files that they take.
    """
    every = {file.parent.name for file in TESTS.glob("*/test_*.py")}
    made = []
    for name in WAITING:
        folder, _, number = name.partition("-")
        more = share(taken, SHARED[folder], is_first=number == "1") if number else []
        more += ["--share-once"] if number and folder in ONCE else []
        made.append(Lane(name, [f"{TESTS.name}/{folder}"], [*more, *arguments]))
    others = every - {lane.name.partition("-")[0] for lane in made}
    rest = sorted(f"{TESTS.name}/{folder}" for folder in others)
    # both begin with the first files: no fixture takes long to start
    own = [*share(taken, "", is_first=True), *arguments]
    low = [Lane(name, rest, own, LOW_PRIORITY) for name in REST]
    return [*low, *made]


def share(taken: Path, fixtures: str, *, is_first: bool) -> list[str]:
    """Arguments of a lane that shares its files with another one."""
    options = ["-p", "tests.support.file_sharing", "--share", str(taken), "--share-first", fixtures]
    return options if is_first else [*options, "--share-backwards"]


def halves(folder: str, arguments: Sequence[str]) -> list[Lane]:
    """Return the tests of a folder in two lanes of similar file sizes."""
    files = sorted((TESTS / folder).rglob("test_*.py"), key=lambda file: -file.stat().st_size)
    turns = (files[0::4] + files[3::4], files[1::4] + files[2::4])
    return [
        Lane(
            f"{folder}-{number}",
            sorted(f"{TESTS.name}/{f.relative_to(TESTS).as_posix()}" for f in turn),
            arguments,
        )
        for number, turn in enumerate(turns, 1)
    ]


def run(wanted: Sequence[Lane], at_once: int = LANES_MAX) -> int:
    """Run lanes in parallel; return the exit status, that of a failed lane if one failed."""
    waiting = list(wanted)
    running: list[Lane] = []
    failed: list[Lane] = []
    reported_s = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                lane = waiting.pop(0)
                lane.start()
                running.append(lane)
            time.sleep(0.2)
            for lane in [lane for lane in running if lane.has_ended()]:
                running.remove(lane)
                if lane.is_good:
                    lane.show()
                else:
                    failed.append(lane)
            if running and time.monotonic() - reported_s > REPORT_EVERY_S:
                reported_s = time.monotonic()
                print(", ".join(lane.progress() for lane in running), flush=True)
    finally:
        for lane in running:
            lane.process.terminate()
            lane.process.wait()
    for lane in failed:
        lane.show()
    if failed:
        return failed[-1].process.returncode
    return min(lane.process.returncode for lane in wanted)


@contextmanager
def archiving() -> Iterator[None]:
    """Make the class data archive of brokers next to the tests; without it they start slower."""
    REPORTS.mkdir(exist_ok=True)
    command = [sys.executable, "-m", class_archives.__name__]
    environ = {**os.environ, OPTIONS: JAVA_OPTIONS}
    with (REPORTS / "class-archives.txt").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environ)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def main(what: str, arguments: Sequence[str]) -> int:
    """Run the suite, or the tests of a folder in two halves; return the exit status."""
    # once: lanes that start at the same time would all compile the same modules
    for folder in COMPILED:
        compileall.compile_dir(TESTS.parent / folder, quiet=2)
    if what != "suite":
        return run(halves(what, arguments))
    with archiving(), tempfile.TemporaryDirectory(prefix="icefloe-lanes-") as taken:
        return run(lanes(arguments, Path(taken)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""Parallel runs of pytest: ``python -m tests.lanes (suite|unit) [ARGUMENTS]``.

Many tests wait for brokers, nodes and tables, and leave a core idle on which others can compute.
``suite`` is the default suite; ``unit`` the unit tests alone, in two halves.

Rules of this file:
- A lane of the suite is whole folders, or half of a long one. What a session shares is started by
  each lane, and nothing is shared between lanes but the machine.
- No more than ``AT_A_TIME`` lanes run at the same time. The others wait for a place, in their
  order: those that wait for brokers and nodes come first.
- A folder that no lane names is in the lane of those that only compute: none is forgotten.
  That lane takes what processor time the others leave, and slows none of them down.
- What a lane printed is shown when it ends, a failed lane's last: the end of the output is a
  summary of pytest's, a failure's if there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parent
WAITING = {"whole": {"attack", "e2e"}, "contract": {"contract"}}
HALVED = ("integration",)  # one lane of it would be the longest
REST = "rest"
AT_A_TIME = 3  # more of them on two cores, and waits within a test become long
LEFTOVERS = 5  # niceness
REPORTS = Path("build")
REPORT_EVERY_S = 60
NOTHING_SELECTED = 5
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


@dataclass
class Lane:
    """One run of pytest.

    Attributes:
        name: of the lane.
        folders: what it runs, or single files.
        arguments: for pytest, behind the folders.
        niceness: how far it stands back behind others.
    """

    name: str
    folders: Sequence[str]
    arguments: Sequence[str]
    niceness: int = 0
    process: subprocess.Popen[bytes] = field(init=False)
    began_s: float = field(init=False)

    def start(self) -> None:
        """Start it; what it prints goes to a file."""
        self.began_s = time.monotonic()
        REPORTS.mkdir(exist_ok=True)
        cache = f"cache_dir=.pytest_cache/{self.name}"
        command = [sys.executable, "-m", "pytest", *self.folders, "-o", cache, *self.arguments]
        with self.report.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        if self.niceness:
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, self.process.pid, own + self.niceness)

    @property
    def report(self) -> Path:
        """What it has printed."""
        return REPORTS / f"tests-{self.name}.txt"

    @property
    def is_good(self) -> bool:
        """Whether no test failed; of a lane that has ended."""
        return self.process.returncode in {0, NOTHING_SELECTED}

    def progress(self) -> str:
        """How far it is."""
        found = _PERCENT.findall(self.report.read_bytes())
        return f"{self.name} {int(found[-1]) if found else 0} %"

    def show(self) -> None:
        """Print its report."""
        took_s = time.monotonic() - self.began_s
        print(f"\n{self.name} lane: {took_s:.0f} s", flush=True)
        sys.stdout.buffer.write(self.report.read_bytes())
        sys.stdout.flush()


def lanes(arguments: Sequence[str]) -> list[Lane]:
    """All of them, with every folder that has tests in one."""
    every = sorted({file.parent.name for file in TESTS.glob("*/test_*.py")})
    lane_of = {folder: name for name, folders in WAITING.items() for folder in folders}
    parts: dict[str, list[str]] = {name: [] for name in (*WAITING, REST)}
    for folder in every:
        if folder not in HALVED:
            parts[lane_of.get(folder, REST)].append(f"{TESTS.name}/{folder}")
    whole, *others = [
        Lane(name, folders, arguments, LEFTOVERS if name == REST else 0)
        for name, folders in parts.items()
    ]
    return [whole, *(lane for name in HALVED for lane in halves(name, arguments)), *others]


def halves(folder: str, arguments: Sequence[str]) -> list[Lane]:
    """The tests of a folder in two lanes, as even as their files are long."""
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


def run(wanted: Sequence[Lane]) -> int:
    """Run lanes in parallel; return the exit status, pytest's own of a lane that failed."""
    to_start = list(wanted)
    left: list[Lane] = []
    failed: list[Lane] = []
    reported_s = time.monotonic()
    try:
        while to_start or left:
            while to_start and len(left) < AT_A_TIME:
                lane = to_start.pop(0)
                lane.start()
                left.append(lane)
            time.sleep(0.2)
            for lane in [lane for lane in left if lane.process.poll() is not None]:
                left.remove(lane)
                if lane.is_good:
                    lane.show()
                else:
                    failed.append(lane)
            if left and time.monotonic() - reported_s > REPORT_EVERY_S:
                reported_s = time.monotonic()
                print(", ".join(lane.progress() for lane in left), flush=True)
    finally:
        for lane in left:
            lane.process.terminate()
            lane.process.wait()
    for lane in failed:
        lane.show()
    if failed:
        return failed[-1].process.returncode
    return min(lane.process.returncode for lane in wanted)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    sys.exit(run(lanes(rest) if what == "suite" else halves(what, rest)))

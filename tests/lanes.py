"""The default suite as two runs of pytest beside each other: ``python -m tests.lanes [ARGUMENTS]``.

Many tests wait for brokers, nodes and tables, and leave a core idle on which others can compute.

Rules of this file:
- A lane is whole folders: what a session shares belongs to one lane, and nothing is shared between
  lanes but the machine.
- A folder that is not named here is in the first lane: none is forgotten.
- What a lane printed is shown when it ends, a failed lane's last: the end of the output is a
  summary of pytest's, a failure's if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parent
SECOND = {"contract", "integration"}
REPORTS = Path("build")
TOLD_EVERY_S = 60
NOTHING_SELECTED = 5
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


@dataclass
class Lane:
    """One run of pytest.

    Attributes:
        name: of the lane.
        folders: what it runs.
        arguments: for pytest, behind the folders.
    """

    name: str
    folders: Sequence[str]
    arguments: Sequence[str]
    process: subprocess.Popen[bytes] = field(init=False)
    began_s: float = field(init=False, default_factory=time.monotonic)

    def start(self) -> None:
        """Start it; what it prints goes to a file."""
        REPORTS.mkdir(exist_ok=True)
        cache = f"cache_dir=.pytest_cache/{self.name}"
        command = [sys.executable, "-m", "pytest", *self.folders, "-o", cache, *self.arguments]
        with self.report.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

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
        print(f"\n{self.name} lane, {' '.join(self.folders)}: {took_s:.0f} s", flush=True)
        sys.stdout.buffer.write(self.report.read_bytes())
        sys.stdout.flush()


def lanes(arguments: Sequence[str]) -> list[Lane]:
    """Both, with every folder that has tests in one of them."""
    every = sorted({file.parent.name for file in TESTS.glob("*/test_*.py")})
    parts = {
        "first": [name for name in every if name not in SECOND],
        "second": [name for name in every if name in SECOND],
    }
    return [
        Lane(name, [f"{TESTS.name}/{folder}" for folder in folders], arguments)
        for name, folders in parts.items()
    ]


def run(wanted: Sequence[Lane]) -> int:
    """Run lanes beside each other; the exit status, pytest's own of a lane that failed."""
    left: list[Lane] = []
    failed: list[Lane] = []
    told_s = time.monotonic()
    try:
        for lane in wanted:
            lane.start()
            left.append(lane)
        while left:
            time.sleep(0.2)
            for lane in [lane for lane in left if lane.process.poll() is not None]:
                left.remove(lane)
                if lane.is_good:
                    lane.show()
                else:
                    failed.append(lane)
            if left and time.monotonic() - told_s > TOLD_EVERY_S:
                told_s = time.monotonic()
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
    sys.exit(run(lanes(sys.argv[1:])))

"""Many runs: counts, time, and what a failing one says.

``python -m tests.simulation.runs FIRST SEEDS`` prints a line per 10,000 seeds and a summary.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation import script
from tests.simulation.planted import planted_world
from tests.simulation.world import ViolationError, World

TOLD_EVERY = 10_000
CHUNK = 500  # seeds that a process takes at a time


class Summary:
    """What many runs came to."""

    def __init__(self) -> None:
        self.seeds = self.rounds = 0
        self.happened: Counter[str] = Counter()

    def add(self, world: World) -> None:
        """Take a finished run."""
        self.seeds += 1
        self.rounds += world.rounds
        self.happened.update(world.counts)

    def merge(self, other: Summary) -> None:
        """Take what other runs came to."""
        self.seeds += other.seeds
        self.rounds += other.rounds
        self.happened.update(other.happened)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.happened.items()))
        return f"{self.seeds} seeds, {self.rounds} rounds; {counts}"


def run(first_seed: int, seeds: int, summary: Summary) -> None:
    """Run seeds, on all cores where there are many.

    Raises:
        ViolationError: of the lowest seed that fails, with its event log and the smallest script
            that fails in the same way.
    """
    starts = range(first_seed, first_seed + seeds, CHUNK)
    sizes = [min(CHUNK, first_seed + seeds - start) for start in starts]
    if len(sizes) == 1:
        summary.merge(_run_chunk(first_seed, seeds))
        return
    # not forked: whoever asks may have threads
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), fresh) as pool:
        try:
            for part in pool.map(_run_chunk, starts, sizes):
                summary.merge(part)
        except ViolationError:
            pool.shutdown(cancel_futures=True)
            raise


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """A world breaks its circles at its end: the collector finds nothing and costs a tenth."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run_chunk(first_seed: int, seeds: int) -> Summary:
    """Run seeds one after the other."""
    summary = Summary()
    with _uncollected():
        for seed in range(first_seed, first_seed + seeds):
            world = World(script.script_of(seed))
            try:
                world.run()
            except ViolationError:
                raise ViolationError(report(seed)) from None
            summary.add(world)
    return summary


def violation_of(moves: script.Script, off: Iterable[str] = ()) -> str | None:
    """What a script breaks, with protections switched off if any are named."""
    try:
        planted_world(moves, off).run()
    except ViolationError as e:
        return str(e)
    return None


def report(seed: int, off: Iterable[str] = ()) -> str:
    """Everything that helps to find out why a seed failed."""
    moves = script.script_of(seed)

    def kind(moves: script.Script) -> str:
        return (violation_of(moves, off) or "").split(" ", 1)[0].rstrip(":")

    wanted = kind(moves)
    small = script.smallest(moves, lambda candidate: kind(candidate) == wanted)
    return "\n".join(
        (
            f"seed {seed}: {violation_of(moves, off)}",
            f"whole script ({len(moves) - 1} moves), event log:",
            *log_of(moves, off),
            f"smallest script ({len(small) - 1} moves), event log:",
            *log_of(small, off),
            f"again: make sim FIRST_SEED={seed} SEEDS=1",
            f"the smallest: make sim SCRIPT={script.text(small)}",
        )
    )


def log_of(moves: script.Script, off: Iterable[str] = ()) -> list[str]:
    """The event log of a script."""
    world = planted_world(moves, off, has_trace=True)
    try:
        world.run()
    except ViolationError as e:
        world.say(f"VIOLATION {e}")
    return world.trace or []


def main(first_seed: int, seeds: int) -> None:
    """Run and print."""
    summary = Summary()
    started_s, cpu_s = time.monotonic(), _cpu_s()
    for first in range(first_seed, first_seed + seeds, TOLD_EVERY):
        run(first, min(TOLD_EVERY, first_seed + seeds - first), summary)
        took_s, used_s = time.monotonic() - started_s, _cpu_s() - cpu_s
        print(f"{summary.seeds} seeds, {took_s:.0f} s, {used_s:.0f} s of CPU", flush=True)
    print(summary, flush=True)


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

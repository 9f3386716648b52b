"""Runs many seeds: totals, time, and the report of a seed that fails.

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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation import script
from tests.simulation.planted import planted_world
from tests.simulation.world import ViolationError, World

PRINT_EVERY = 10_000
CHUNK = 500  # seeds that a process takes at a time


class Summary:
    """The totals of many runs."""

    def __init__(self) -> None:
        self.seeds = self.rounds = 0
        self.cpu_s = 0.0
        self.happened: Counter[str] = Counter()

    def add(self, world: World) -> None:
        """Add a finished run."""
        self.seeds += 1
        self.rounds += world.rounds
        self.happened.update(world.counts)

    def merge(self, other: Summary) -> None:
        """Add the totals of other runs."""
        self.seeds += other.seeds
        self.rounds += other.rounds
        self.cpu_s += other.cpu_s
        self.happened.update(other.happened)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.happened.items()))
        return f"{self.seeds} seeds, {self.rounds} rounds; {counts}"


def run(
    first_seed: int, seeds: int, summary: Summary, on_chunk: Callable[[], None] = lambda: None
) -> None:
    """Run seeds on all cores that this process may use.

    Args:
        first_seed: the lowest seed.
        seeds: their number.
        summary: takes the totals.
        on_chunk: called after each chunk of seeds.

    Raises:
        ViolationError: of the lowest seed that fails, with its event log and the smallest script
            that fails in the same way.
    """
    starts = range(first_seed, first_seed + seeds, CHUNK)
    sizes = [min(CHUNK, first_seed + seeds - start) for start in starts]
    processes = min(len(sizes), len(os.sched_getaffinity(0)))
    with contextlib.ExitStack() as stack:
        parts: Iterable[Summary] = map(_run_chunk, starts, sizes)
        if processes > 1:
            # one pool for all seeds: each process needs a second for its imports; not forked,
            # because the caller may have threads
            fresh = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(processes, fresh))
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            parts = pool.map(_run_chunk, starts, sizes)
        for part in parts:
            summary.merge(part)
            on_chunk()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector: a world breaks its reference cycles at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run_chunk(first_seed: int, seeds: int) -> Summary:
    """Run seeds one after the other."""
    summary = Summary()
    started_s = time.process_time()
    with _uncollected():
        for seed in range(first_seed, first_seed + seeds):
            world = World(script.script_of(seed))
            try:
                world.run()
            except ViolationError:
                raise ViolationError(report(seed)) from None
            summary.add(world)
    summary.cpu_s = time.process_time() - started_s
    return summary


def violation_of(moves: script.Script, off: Iterable[str] = ()) -> str | None:
    """Return the violation of a script, with the named protections switched off."""
    try:
        planted_world(moves, off).run()
    except ViolationError as e:
        return str(e)
    return None


def report(seed: int, off: Iterable[str] = ()) -> str:
    """Return the report of a failed seed: event log and smallest script."""
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
    """Return the event log of a script."""
    world = planted_world(moves, off, has_trace=True)
    try:
        world.run()
    except ViolationError as e:
        world.add_to_trace(f"VIOLATION {e}")
    return world.trace or []


def main(first_seed: int, seeds: int) -> None:
    """Run and print."""
    summary = Summary()
    started_s = time.monotonic()

    def print_progress() -> None:
        if not summary.seeds % PRINT_EVERY or summary.seeds == seeds:
            took_s = time.monotonic() - started_s
            rate = summary.seeds / summary.cpu_s
            print(f"{summary.seeds} seeds, {took_s:.0f} s, {rate:.0f} seeds/CPU s", flush=True)

    run(first_seed, seeds, summary, print_progress)
    used = os.times()
    cpu_s = used.user + used.system + used.children_user + used.children_system
    print(f"CPU: {cpu_s:.0f} s with the start of all processes", flush=True)
    print(summary, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

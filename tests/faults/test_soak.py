"""A soak: three nodes lose workers, coordinators and whole nodes while tables are maintained.

``SOAK_SECONDS`` is how long records are produced and processes are killed. ``SOAK_SEED`` repeats
the order of the kills; the test prints its seed.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.soak_records import (
    APPEND_TOPIC,
    UPSERT_TOPIC,
    SoakProducer,
    read_rows,
    read_values,
    row_differences,
)
from tests.faults.soak_stack import DEAD_TOPIC, NODES, SoakStack, soak_stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]

SECONDS = int(os.environ.get("SOAK_SECONDS", "240"))
SEED = int(os.environ.get("SOAK_SEED", str(time.time_ns() % 1_000_000)))
KILL_EVERY_S = 20.0
VICTIMS = ("worker", "coordinator", "node")
RECORDS_PER_S = 200
RECOVERY_S = 600.0
MAINTAINED_S = 900  # a run of this length maintains its tables, however often it is interrupted
COLUMNS = {APPEND_TOPIC: "text", UPSERT_TOPIC: "version"}


@pytest.mark.timeout(SECONDS + 2_400)
def test_hours_of_kills_lose_and_duplicate_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row is there once, every dead letter too, and everything runs without an operator."""
    with capsys.disabled():
        print(f"\nsoak: seed {SEED}, {SECONDS} s")
    began_s = time.monotonic()
    with soak_stack(tmp_path) as run:
        producer = SoakProducer(run.client, RECORDS_PER_S)
        producer.start()
        try:
            run.wait_until(lambda: all(_rows(run).values()), "the first rows")
            kills, maintained = _kill(run, random.Random(SEED), began_s=time.monotonic())
        finally:
            producer.stop()
        stopped_s = time.monotonic()
        run.wait_until(lambda: run.committed() == run.ends(), "reading to the end", RECOVERY_S)
        run.wait_until(run.is_running, "everything RUNNING", RECOVERY_S)
        recovered_s = time.monotonic() - stopped_s
        wanted = {
            APPEND_TOPIC: Counter((n, f"n{n}") for n in producer.appended),
            UPSERT_TOPIC: Counter(producer.versions.items()),
        }
        found = {topic: _differences(run, topic, rows) for topic, rows in wanted.items()}
        dead_letters = Counter(read_values(run.client, DEAD_TOPIC))
        states = run.is_running()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    with capsys.disabled():
        print(
            f"soak: seed {SEED}, {time.monotonic() - began_s:.0f} s in all, kills {dict(kills)}, "
            f"{producer.sent:,} records to each topic, recovered in {recovered_s:.0f} s, "
            f"{found}, {dead_letters.total()} dead letters, "
            f"{children.ru_utime + children.ru_stime:.0f} s of processor time; "
            f"maintenance: {sorted(maintained)}"
        )
    assert found == {topic: {"lost": 0, "twice": 0} for topic in wanted}
    assert dead_letters == producer.broken
    assert states
    assert all(kills[victim] for victim in VICTIMS)
    assert SECONDS < MAINTAINED_S or any(state == "DONE" for _, _, state in maintained)


def _kill(
    run: SoakStack, rng: random.Random, *, began_s: float
) -> tuple[Counter[str], set[tuple[str, str, str]]]:
    """Kill a process every ``KILL_EVERY_S``; each kind in turn, in random order, on any node.

    Returns:
        The kills by kind, and the results of the maintenance.
    """
    kills: Counter[str] = Counter()
    maintained: set[tuple[str, str, str]] = set()
    victims: list[str] = []
    while time.monotonic() - began_s < SECONDS:
        time.sleep(rng.uniform(0.7, 1.3) * KILL_EVERY_S)
        maintained |= run.maintenance_results()
        if not victims:
            victims = rng.sample(VICTIMS, len(VICTIMS))
        victim, node = victims.pop(), rng.choice(NODES)
        if run.kill(victim, node):
            kills[victim] += 1
    return kills, maintained


def _rows(run: SoakStack) -> dict[str, bool]:
    return {topic: run.table(topic).current_snapshot() is not None for topic in COLUMNS}


def _differences(run: SoakStack, topic: str, wanted: Counter[Any]) -> dict[str, int]:
    """Compare a table with its records, once the last round is committed."""
    deadline_s = time.monotonic() + RECOVERY_S
    while True:
        found = read_rows(run.table(topic), COLUMNS[topic])
        if found == wanted or time.monotonic() > deadline_s:
            return row_differences(wanted, found)
        time.sleep(5)

"""SIGKILL to worker, coordinator, node and broker at random moments while records move.

``FAULT_RECORDS``, ``FAULT_SEEDS`` (how many) and ``FAULT_FIRST_SEED`` set the size of a run.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.chaos import SEEDS, Field, connector, field
from tests.faults.production import Production

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS = int(os.environ.get("FAULT_RECORDS", "2000000"))
VICTIMS = ("worker", "coordinator", "node", "broker")
BLOWS_EACH = 2
RECORDS_PER_S = 40_000
# most blows hit a stack that has recovered; the rest hit one that is about to
RECOVERED_SHARE = 0.6


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_there_once_after_kills(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 lost, 0 twice, offsets and VTTS never back, no process left, no manual step."""
    chance = random.Random(seed)
    began_s = time.monotonic()
    with field(tmp_path / "state", connector()) as run:
        production = run.production(RECORDS_PER_S)
        try:
            strike_all(run, production, chance)
            last_s = time.monotonic()
            production.finish()
            first_s = run.wait_until_committed(production.rows)
        finally:
            production.stop()
        done_s = time.monotonic()
        left = run.left_processes()
        verdict = run.verdict()
    assert not verdict.wrong
    assert verdict.records >= RECORDS
    assert not left
    assert_alive(run)
    with capsys.disabled():
        print(
            f"\nkills: seed {seed}, {dict(Counter(blow.victim for blow in run.blows))} in "
            f"{last_s - began_s:.0f} s; after the last moving again in {first_s - last_s:.0f} s, "
            f"all committed in {done_s - last_s:.0f} s; {verdict}; "
            f"{time.monotonic() - began_s:.0f} s in all"
        )


def strike_all(run: Field, production: Production, chance: random.Random) -> None:
    """Kill each victim as often as it is due, in random order, at random moments."""
    victims = list(VICTIMS) * BLOWS_EACH
    chance.shuffle(victims)
    share = RECORDS // (len(victims) + 1)
    production.start(RECORDS, share)
    run.wait_until(run.committed, "the first commit")
    for number, victim in enumerate(victims, start=2):
        if chance.random() < RECOVERED_SHARE:
            before = run.committed()
            run.wait_until(lambda before=before: run.committed() > before, "progress after a kill")
        time.sleep(chance.uniform(0, 4))
        run.strike(victim, production.sent)
        production.allow(share * number)


def assert_alive(run: Field) -> None:
    """The chaos was real: every kind of kill often enough, all of them while records moved."""
    counts = Counter(blow.victim for blow in run.blows)
    assert all(counts[victim] >= BLOWS_EACH for victim in VICTIMS)
    assert all(0 < blow.sent < RECORDS for blow in run.blows)
    assert all(blow.committed < RECORDS for blow in run.blows)
    assert run.blows[-1].committed > run.blows[0].committed > 0

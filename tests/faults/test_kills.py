"""SIGKILL to worker, coordinator, node and broker at random moments while records are produced.

``FAULT_RECORDS``, ``FAULT_SEEDS`` (how many) and ``FAULT_FIRST_SEED`` set the size of a run.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.payments_producer import PaymentsProducer
from tests.faults.payments_stack import SEEDS, PaymentsStack, connector, payments_stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS = int(os.environ.get("FAULT_RECORDS", "2000000"))
VICTIMS = ("worker", "coordinator", "node", "broker")
KILLS_EACH = 2
RECORDS_PER_S = 40_000
# most kills hit a stack that has recovered, the others one that recovers
RECOVERED_SHARE = 0.6


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_lose_and_duplicate_no_record(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offsets and VTTS never decrease, no process is left, and no manual step is needed."""
    rng = random.Random(seed)
    began_s = time.monotonic()
    with payments_stack(tmp_path / "state", connector()) as run:
        producer = run.producer(RECORDS_PER_S)
        try:
            kill_all(run, producer, rng)
            last_s = time.monotonic()
            producer.finish()
            first_s = run.wait_until_committed(producer.rows)
        finally:
            producer.request_stop()
        done_s = time.monotonic()
        left = run.orphan_processes()
        result = run.check_result()
    assert not result.findings
    assert result.records >= RECORDS
    assert not left
    assert_kills_hit_running_work(run)
    with capsys.disabled():
        print(
            f"\nkills: seed {seed}, {dict(Counter(kill.victim for kill in run.kills))} in "
            f"{last_s - began_s:.0f} s; after the last moving again in {first_s - last_s:.0f} s, "
            f"all committed in {done_s - last_s:.0f} s; {result}; "
            f"{time.monotonic() - began_s:.0f} s in all"
        )


def kill_all(run: PaymentsStack, producer: PaymentsProducer, rng: random.Random) -> None:
    """Kill each victim ``KILLS_EACH`` times, in random order, at random moments."""
    victims = list(VICTIMS) * KILLS_EACH
    rng.shuffle(victims)
    share = RECORDS // (len(victims) + 1)
    producer.start(RECORDS, share)
    run.wait_until(run.committed, "the first commit")
    for number, victim in enumerate(victims, start=2):
        if rng.random() < RECOVERED_SHARE:
            before = run.committed()
            run.wait_until(lambda before=before: run.committed() > before, "progress after a kill")
        time.sleep(rng.uniform(0, 4))
        run.kill(victim, producer.sent)
        producer.allow(share * number)


def assert_kills_hit_running_work(run: PaymentsStack) -> None:
    """Each process was killed often enough, and always while records were produced."""
    counts = Counter(kill.victim for kill in run.kills)
    assert all(counts[victim] >= KILLS_EACH for victim in VICTIMS)
    assert all(0 < kill.sent < RECORDS for kill in run.kills)
    assert all(kill.committed < RECORDS for kill in run.kills)
    assert run.kills[-1].committed > run.kills[0].committed > 0

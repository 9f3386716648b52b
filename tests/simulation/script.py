"""What makes a run: a script of moves, made from a seed, made small when it fails.

Rules of this file:
- The first number of a script says which kinds of faults there are; every other one is a move.
- A move carries all the chance it needs, so that the others mean the same without it.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence

MOVES = 64
SHRINK_RUNS_MAX = 4_000

# Kinds of faults, each on in about half of the seeds (those that lose data: fewer).
CRASH = 1 << 0
FREEZE = 1 << 1
LAYOUT = 1 << 2
TRANSACTIONS = 1 << 3
UNKNOWN = 1 << 4
FOREIGN = 1 << 5
EXPIRY = 1 << 6
MISSING = 1 << 7
RESTLESS = 1 << 8
ROLLBACK = 1 << 9
REPLACE = 1 << 10
BRANCH = 1 << 11
OPERATOR = 1 << 12
RETENTION = 1 << 13
TWO_PARTITIONS = 1 << 14
UPSERT = 1 << 15
JAVA = 1 << 16
HEAL = 1 << 17
OFFSETS_EXPIRE = 1 << 18
DATA_LOSS = 1 << 19
TOPIC_AGAIN = 1 << 20
BARE_TABLE = 1 << 21
FOREIGN_GROUP = 1 << 22
DELAY = 1 << 23
FINISH = 1 << 24
CONFIG_LOST = 1 << 25
SOURCE_OFFSETS = 1 << 26
KEEPER = 1 << 27
FUTURE = 1 << 28
RESET = 1 << 29
KINDS_BITS = 30
CHANCE_SHIFT = 29  # the bits from there on are the chance of the start
CONTINUE_SHIFT = 40  # this one of them decides whether tasks continue after lost source records
CLOCKS_SHIFT = 41  # these two decide how many nodes have a clock that is ahead
OTHERS_SHIFT = 43  # this one decides whether others wrote the tables before, and snapshots expired
IDLE_SHIFT = 45  # this one decides whether idle tasks close their producers
APART = FINISH | CONFIG_LOST | SOURCE_OFFSETS | KEEPER | FUTURE
RARE = DATA_LOSS | TOPIC_AGAIN | ROLLBACK | REPLACE | BARE_TABLE | SOURCE_OFFSETS

# (name, of 256, the kind it needs)
_WEIGHTS: tuple[tuple[str, int, int], ...] = (
    ("produce", 32, 0),
    ("supervise", 10, 0),
    ("crash", 8, CRASH),
    ("freeze", 5, FREEZE),
    ("thaw", 6, FREEZE),
    ("restart_task", 10, RESTLESS),
    ("change_layout", 12, LAYOUT),
    ("crash_leader", 12, LAYOUT),
    ("time_out_transaction", 3, TRANSACTIONS),
    ("hang_transaction", 4, FOREIGN_GROUP),
    ("foreign_events", 2, FOREIGN_GROUP),
    ("land_late", 4, UNKNOWN),
    ("foreign_commit", 4, FOREIGN),
    ("expire", 4, EXPIRY),
    ("go_missing", 3, MISSING),
    ("go_away", 2, MISSING),
    ("roll_back", 3, ROLLBACK),
    ("replace_table", 2, REPLACE),
    ("delete_branch", 2, BRANCH),
    ("decide", 5, OPERATOR),
    ("repair", 4, OPERATOR),
    ("retain", 3, RETENTION),
    ("expire_offsets", 2, OFFSETS_EXPIRE),
    ("lose_control_events", 6, DATA_LOSS),
    ("lose_source_records", 3, DATA_LOSS),
    ("create_topic_again", 4, TOPIC_AGAIN),
    ("finish", 5, FINISH),
    ("lose_config_topic", 3, CONFIG_LOST),
    ("expire_source_offset", 3, SOURCE_OFFSETS),
    ("keep_offsets", 7, KEEPER),
    ("reset_valid_through", 3, RESET),
)
BY_BYTE: list[tuple[str, int]] = [(n, kind) for n, weight, kind in _WEIGHTS for _ in range(weight)]
BY_BYTE += [("step", 0)] * (256 - len(BY_BYTE))
"""What each low byte of a move asks for; a step where its kind of faults is off."""
Script = Sequence[int]


def script_of(seed: int, kinds: int = 0, without: int = 0) -> Script:
    """The script of a seed, with and without these kinds of faults."""
    rng = random.Random(seed)
    numbers = array("Q", rng.randbytes(8 * (MOVES + 1)))
    flags = numbers[0]
    if flags >> 56 & 3:  # three of four runs keep all their data
        flags &= ~RARE
    if flags >> 58 & 1:  # half of the runs leave the others their room
        flags &= ~APART
    if flags & BARE_TABLE:  # a floor without any memory cannot be known
        flags &= ~OFFSETS_EXPIRE
    if not flags & FUTURE or flags & ROLLBACK:  # a rolled back branch has its old claims again
        flags &= ~RESET
    if flags & JAVA:  # its sink only appends
        flags &= ~UPSERT
    numbers[0] = (
        kinds | flags & (1 << 56) - 1
    ) & ~without  # what is above the kinds of faults is chance
    return numbers


def smallest(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Take moves and kinds of faults out of a failing script while it still fails.

    Args:
        script: fails.
        fails: whether a script still fails in the same way.
    """
    runs = 0

    def try_it(candidate: list[int]) -> bool:
        nonlocal runs
        runs += 1
        return runs <= SHRINK_RUNS_MAX and fails(candidate)

    current = list(script)
    is_smaller = True
    while is_smaller:
        before = list(current)
        current = _without_moves(current, try_it)
        for bit in range(KINDS_BITS):
            without = [current[0] & ~(1 << bit), *current[1:]]
            if without != current and try_it(without):
                current = without
        current = _simpler_moves(current, try_it)
        is_smaller = current != before and runs < SHRINK_RUNS_MAX
    return current


def _without_moves(current: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    size = max(1, (len(current) - 1) // 2)
    while True:
        at = len(current) - size
        while at >= 1:
            without = current[:at] + current[at + size :]
            if fails(without):
                current = without
            at -= size
        if size == 1:
            return current
        size //= 2


def _simpler_moves(current: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    for at in range(1, len(current)):
        for simple in (current[at] & 0xFF, current[at] & 0xFFFF):
            if simple != current[at]:
                candidate = [*current[:at], simple, *current[at + 1 :]]
                if fails(candidate):
                    current = candidate
                    break
    return current


def text(script: Script) -> str:
    """Return a script as text, for the environment."""
    return "-".join(f"{number:x}" for number in script)


def parsed(script_text: str) -> Script:
    """The inverse of ``text``."""
    return [int(number, 16) for number in script_text.split("-")]

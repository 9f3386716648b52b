"""How many of the last records were dead letters: a bad deploy stops a task, it is not set aside.

Rules of this file:
- The window is of whole batches and never of fewer than ``RECORDS_MIN`` records; the batch that
  is judged is always in it.
- Nothing of a record is kept but its coordinates.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from connect.errors import RecordError
from connect.layout import TopicPartition
from worker.descriptors import DeadLetter
from worker.rounds import WrittenBatch

RECORDS_MIN: Final = 1_000
MAX_RATIO: Final = "errors.deadletterqueue.max-ratio"
TOO_MANY: Final = "too_many_dead_letters"


@dataclass(frozen=True, slots=True)
class _Counted:
    """One batch: how often each code was met, and where first."""

    read: int
    refused: int
    codes: Counter[str]
    firsts: Mapping[str, tuple[TopicPartition, int, str]]


@dataclass(slots=True)
class DeadLetterRatio:
    """The dead letters among the last records that a task read.

    Args:
        ratio_max: a larger share stops the task; 1 lets everything pass.
    """

    ratio_max: float
    _window: deque[_Counted] = field(default_factory=deque, init=False)
    _read: int = field(default=0, init=False)
    _refused: int = field(default=0, init=False)

    def add(self, batch: WrittenBatch) -> None:
        """Judge a batch together with those before it, before anybody hears of it.

        Raises:
            RecordError: ``too_many_dead_letters``; the batch must not be announced.
        """
        counted = _counted(batch)
        self._window.append(counted)
        self._read += counted.read
        self._refused += counted.refused
        while self._read - self._window[0].read >= RECORDS_MIN:
            oldest = self._window.popleft()
            self._read -= oldest.read
            self._refused -= oldest.refused
        if self._read >= RECORDS_MIN and self._refused > self.ratio_max * self._read:
            raise self._error()

    def _error(self) -> RecordError:
        codes: Counter[str] = sum((each.codes for each in self._window), Counter())
        most, place, stage = "", "", "TASK_PUT"
        if codes:
            code, count = codes.most_common(1)[0]
            tp, offset, stage = next(
                each.firsts[code] for each in self._window if code in each.firsts
            )
            most = f"; most of them {code} ({count:,})"
            place = f", first at topic {tp.topic}, partition {tp.partition}, offset {offset}"
        return RecordError(
            f"{self._refused:,} of the last {self._read:,} records were dead letters, more than "
            f"{MAX_RATIO}={self.ratio_max:g} allows{most}{place}. The last batch of them was not "
            f"announced: it is read again when the task restarts. Mend the converters, the "
            f"transformations or the tables; or set {MAX_RATIO} higher (1 is no limit) to go on "
            "and set such records aside",
            stage=stage,
            code=TOO_MANY,
        )


def _counted(batch: WrittenBatch) -> _Counted:
    firsts: dict[str, tuple[TopicPartition, int, str]] = {}
    codes: Counter[str] = Counter()
    letter: DeadLetter
    for letter in batch.dead_letters:
        record, code = letter.record, letter.error.code
        codes[code] += 1
        if code not in firsts:
            tp = TopicPartition(record.topic, record.partition)
            firsts[code] = (tp, record.offset, letter.error.stage)
    return _Counted(
        sum(counted.read for counted in batch.progress.values()),
        sum(counted.dead_lettered for counted in batch.progress.values()),
        codes,
        firsts,
    )

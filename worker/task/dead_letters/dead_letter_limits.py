"""Stops a task when too many records are dead letters: too large a share, or too many in a row.

After a bad deployment the task fails, and its records do not all become dead letters.

Rules of this file:
- The window consists of whole batches and has at least ``RECORDS_MIN`` records. It always contains
  the batch that is checked.
- A run belongs to one source partition and continues from batch to batch. Two dead letters with
  consecutive offsets are in one run. If a partition's batch has only dead letters, gaps between
  their offsets do not end the run.
- Only the coordinates of records are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from connect.config.connector import ErrorsConfig
from connect.errors import RecordError
from connect.model.layout import TopicPartition
from worker.batch.descriptors import DeadLetter
from worker.task.read_ledger import WrittenBatch

RECORDS_MIN: Final = 1_000
MAX_RATIO: Final = "errors.deadletterqueue.max-ratio"
MAX_RUN: Final = "errors.deadletterqueue.max-run-length"
TOO_MANY: Final = "too_many_dead_letters"


@dataclass(slots=True)
class DeadLetterLimits:
    """Both limits: the share and the run length.

    Args:
        ratio_max: see ``DeadLetterRatio``.
        run_max: see ``DeadLetterRuns``.
    """

    ratio_max: float
    run_max: int
    _ratio: DeadLetterRatio = field(init=False)
    _runs: DeadLetterRuns = field(init=False)

    def __post_init__(self) -> None:
        self._ratio = DeadLetterRatio(self.ratio_max)
        self._runs = DeadLetterRuns(self.run_max)

    @classmethod
    def of(cls, errors: ErrorsConfig) -> DeadLetterLimits:
        """Return the limits of a connector."""
        return cls(errors.dead_letter_ratio_max, errors.dead_letter_run_max)

    def add(self, batch: WrittenBatch) -> None:
        """Check a batch together with earlier batches, before it can be announced.

        Raises:
            RecordError: ``too_many_dead_letters``; the batch must not be announced.
        """
        self._runs.add(batch)
        self._ratio.add(batch)


@dataclass(frozen=True, slots=True)
class _BatchCounts:
    """One batch: the number of dead letters by code, and the first record of each code."""

    read: int
    refused: int
    codes: Counter[str]
    firsts: Mapping[str, tuple[TopicPartition, int, str]]


@dataclass(slots=True)
class DeadLetterRatio:
    """The dead letters among the last records that a task read.

    Args:
        ratio_max: a larger share stops the task; 1 is no limit.
    """

    ratio_max: float
    _window: deque[_BatchCounts] = field(default_factory=deque, init=False)
    _read: int = field(default=0, init=False)
    _refused: int = field(default=0, init=False)

    def add(self, batch: WrittenBatch) -> None:
        """Check a batch together with earlier batches, before it can be announced.

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
            f"{MAX_RATIO}={self.ratio_max:g} allows{most}{place}. The last batch was not "
            "announced: it is read again when the task restarts. Fix the converters, the "
            f"transformations or the tables; or set {MAX_RATIO} higher (1 is no limit) to "
            "continue with dead letters",
            stage=stage,
            code=TOO_MANY,
        )


def _counted(batch: WrittenBatch) -> _BatchCounts:
    firsts: dict[str, tuple[TopicPartition, int, str]] = {}
    codes: Counter[str] = Counter()
    dead_letter: DeadLetter
    for dead_letter in batch.dead_letters:
        record, code = dead_letter.record, dead_letter.error.code
        codes[code] += 1
        if code not in firsts:
            tp = TopicPartition(record.topic, record.partition)
            firsts[code] = (tp, record.offset, dead_letter.error.stage)
    return _BatchCounts(
        sum(counted.read for counted in batch.progress.values()),
        sum(counted.dead_lettered for counted in batch.progress.values()),
        codes,
        firsts,
    )


# ------------------------------------------------------------------ in a row


@dataclass(frozen=True, slots=True)
class _DeadLetterRun:
    """Dead letters of one source partition with nothing between them."""

    count: int
    first: DeadLetter

    def with_more(self, count: int) -> _DeadLetterRun:
        return _DeadLetterRun(self.count + count, self.first)


@dataclass(slots=True)
class DeadLetterRuns:
    """Dead letters in a row, partition by partition.

    Args:
        run_max: a longer run stops the task; 0 is no limit.
    """

    run_max: int
    _open: dict[TopicPartition, _DeadLetterRun] = field(default_factory=dict, init=False)

    def add(self, batch: WrittenBatch) -> None:
        """Check a batch together with the runs that earlier batches left open.

        Raises:
            RecordError: ``too_many_dead_letters``; the batch must not be announced.
        """
        if not self.run_max:
            return
        dead_letters: dict[TopicPartition, list[DeadLetter]] = {}
        for dead_letter in batch.dead_letters:
            tp = TopicPartition(dead_letter.record.topic, dead_letter.record.partition)
            dead_letters.setdefault(tp, []).append(dead_letter)
        for tp, counted in batch.progress.items():
            if not counted.read:
                continue
            before = self._open.pop(tp, None)
            own = sorted(dead_letters.get(tp, ()), key=lambda each: each.record.offset)
            runs = _runs(own, counted.read, batch.ranges.starts[tp], before)
            for run in runs:
                if run.count > self.run_max:
                    raise self._error(tp, run)
            is_all = len(own) == counted.read
            if runs and (is_all or own[-1].record.offset + 1 == batch.ranges.ends[tp]):
                self._open[tp] = runs[-1]

    def _error(self, tp: TopicPartition, run: _DeadLetterRun) -> RecordError:
        first = run.first
        return RecordError(
            f"{run.count:,} dead letters in a row, more than {MAX_RUN}={self.run_max} allows: "
            f"first at topic {tp.topic}, partition {tp.partition}, offset {first.record.offset}, "
            f"{first.error.code}. The last batch was not announced: it is read again when "
            "the task restarts. Fix the converters, the transformations or the tables; or set "
            f"{MAX_RUN} higher (0 is no limit) to continue with dead letters",
            stage=first.error.stage,
            code=TOO_MANY,
        )


def _runs(
    dead_letters: list[DeadLetter], read: int, start: int, before: _DeadLetterRun | None
) -> list[_DeadLetterRun]:
    """Return the runs of a partition's batch in order; the first may continue an open run."""
    if not dead_letters:
        return []
    if len(dead_letters) == read:
        return [before.with_more(read) if before else _DeadLetterRun(read, dead_letters[0])]
    runs: list[_DeadLetterRun] = []
    last = start - 1
    for dead_letter in dead_letters:
        offset = dead_letter.record.offset
        last_run = runs[-1] if runs else before
        is_next = offset == last + 1
        if last_run is None or not is_next:
            runs.append(_DeadLetterRun(1, dead_letter))
        elif runs:
            runs[-1] = last_run.with_more(1)
        else:
            runs.append(last_run.with_more(1))
        last = offset
    return runs

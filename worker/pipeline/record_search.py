"""Search for the records or the table whose exceptions stop a batch, by halves of each block.

Rules of this file:
- Only exceptions that values can cause are searched for. Errors of stores, services and memory
  end the search.
- A record is found only if it fails alone, the rest of its block succeeds, and the record then
  fails alone again in the same way. So no outage makes a record fail.
- If more records fail than a batch may have, and all that were tried of one table, the table fails.
  But a few records are no proof, and without another table nothing is gained.
- What the search writes is deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.clock import Clock, SystemClock
from connect.errors import InvariantViolation, RecordError
from connect.model.records import KafkaRecord
from connect.records.record_path import ReferencePath
from worker.batch.blocks import Block, blocks
from worker.batch.descriptors import to_batch
from worker.batch.pipeline_spec import PipelineSpec, RecordPlace
from worker.batch.task_access_policy import under_policy
from worker.pipeline.pipeline import PipelineTask

Rows = npt.NDArray[np.int64]
Failures: TypeAlias = dict[RecordPlace, str]
"""The exception of each record that fails alone."""
FailedTables: TypeAlias = dict[str, str]
"""The exception of each table of which every record fails that was tried."""

FAILED_RECORDS_MAX: Final = 20
_RECORDS: Final = "failed_records"
_TABLES: Final = "failed_tables"
_TEXT_CHARACTERS_MAX: Final = 500
_TRIED: Final = 50  # records of a table, evenly spread over a block
_TRIED_MIN: Final = 10
_FAULTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    InvariantViolation,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
_OUTAGES: Final = (OSError, MemoryError)
_UNROUTED: Final = (RecordError, *_FAULTS)


def search(spec: PipelineSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that searches the records of a Spark task; for ``mapInArrow``.

    Args:
        spec: with which the batch failed.
    """
    errors = replace(spec.config.errors, tolerance_all=True)  # refused records hide no others
    config = replace(spec.config, errors=errors)
    return under_policy(partial(_search, replace(spec, config=config, distribution=None)))


def failures_of(batches: Sequence[pa.RecordBatch]) -> tuple[Failures, FailedTables]:
    """Return what the Spark tasks of a search found: records and tables."""
    failures: Failures = {}
    tables: FailedTables = {}
    for batch in batches:
        columns = batch["kind"].to_pylist(), batch["payload"].to_pylist()
        for kind, payload in zip(*columns, strict=True):
            listed = json.loads(payload)
            if kind == _TABLES:
                tables.update(listed)
            else:
                failures.update({(t, p, o): text for t, p, o, text in listed})
    return failures, tables


def _search(spec: PipelineSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    clock = SystemClock()
    failures: Failures = {}
    table: FailedTables = {}
    for block in blocks(batches, PipelineTask(spec, clock).limits):
        block_search = BlockSearch(spec, clock, block)
        failures.update(block_search.failures())
        if len(failures) > FAILED_RECORDS_MAX:
            table = block_search.failed_table(failures)
            break
    records = [[*at, text] for at, text in failures.items()]
    rows = {_RECORDS: records, _TABLES: table}
    yield to_batch((kind, json.dumps(each).encode()) for kind, each in rows.items())


class BlockSearch:
    """Searches one block.

    Args:
        spec: of the Spark task.
        clock: for the names of files.
        block: the records.
    """

    def __init__(self, spec: PipelineSpec, clock: Clock, block: Block) -> None:
        self._spec = spec
        self._clock = clock
        self._block = block

    def failures(self) -> Failures:
        """Return the records that fail; at most one more than a batch may have.

        Raises:
            Exception: of a store, a service or the memory.
        """
        everything = np.arange(self._block.count, dtype=np.int64)
        failures: dict[int, str] = {}
        waiting = [everything]
        while waiting and len(failures) <= FAILED_RECORDS_MAX:
            places = waiting.pop()
            text = self._failure(places)
            if text is not None and len(places) == 1:
                failures[int(places[0])] = text
            elif text is not None:
                half = len(places) // 2
                waiting += [places[half:], places[:half]]
        if len(failures) <= FAILED_RECORDS_MAX and not self._is_confirmed(everything, failures):
            return {}
        return {self._place(place): text for place, text in failures.items()}

    def failed_table(self, failures: Failures) -> FailedTables:
        """Return the table of most failed records, if all of its records fail that are tried.

        Args:
            failures: records of this block and others.
        """
        config = self._spec.config
        if not config.has_tables:
            return {}
        places: dict[str, list[int]] = {}
        failed: Counter[str] = Counter()
        reference = ReferencePath(config)
        everything = np.arange(self._block.count, dtype=np.int64)
        for place, record in enumerate(self._block.records(everything)):
            is_failed = (record.topic, record.partition, record.offset) in failures
            for name in _tables_of(record, reference):
                places.setdefault(name, []).append(place)
                failed[name] += is_failed
        many = [name for name, own in places.items() if len(own) >= _TRIED_MIN]
        name = max(many, key=lambda each: failed[each], default="")
        named = set() if config.dynamic_enabled else set(config.tables)
        is_last = bool(named) and named <= {name, *self._spec.unusable}
        if not failed[name] or is_last:
            return {}
        own = places[name]
        tried = {own[at] for at in np.linspace(0, len(own) - 1, _TRIED, dtype=int)}
        texts = [self._failure(np.array([place])) for place in sorted(tried)]
        return {} if None in texts else {name: str(texts[0])}

    def _is_confirmed(self, everything: Rows, failures: dict[int, str]) -> bool:
        if not failures or self._failure(np.delete(everything, [*failures])) is not None:
            return False
        return all(self._failure(np.array([at])) == text for at, text in failures.items())

    def _failure(self, places: Rows) -> str | None:
        """Return the exception of some records; None if there is none, or another error."""
        task = PipelineTask(self._spec, self._clock)
        try:
            task.try_out(Block(self._block.table.take(pa.array(places))))
        except _FAULTS as error:
            if isinstance(error, _OUTAGES):
                raise
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_TEXT_CHARACTERS_MAX]
        except RecordError:
            return None  # the batch will name it
        return None

    def _place(self, place: int) -> RecordPlace:
        table = self._block.table
        topic, partition, offset = (
            table[name][place].as_py() for name in ("topic", "partition", "offset")
        )
        return topic, partition, offset


def _tables_of(record: KafkaRecord, reference: ReferencePath) -> set[str]:
    """Return the tables of a record; none if it cannot be read or routed."""
    try:
        return {name for each in reference.read(record) for name in reference.route(each)}
    except _UNROUTED:
        return set()

"""Column forms of connectors whose topics have different converters.

Rules of this file:
- Each set of converters has its own form. A block is divided by the sets of its topics. A block
  whose records have one set is not copied.
- A connector without converters of topics has one form, and its blocks are not divided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.records.converters.record_converters import ConvertersByTopic, RecordConverters
from connect.records.record_path import ReferencePath
from worker.batch.blocks import Block
from worker.batch.pipeline_spec import PipelineSpec
from worker.decode.decoded_rows import Columns
from worker.pipeline.column_path import ColumnForm
from worker.write.table_writers import AlikeTables

Rows = npt.NDArray[np.int64]


class TopicForms:
    """Decodes the records of a block with the converters of their topics.

    Args:
        forms: one for each set of ``converters``.
        converters: of the connector.
    """

    def __init__(self, forms: Sequence[ColumnForm], converters: ConvertersByTopic) -> None:
        self._forms = dict(zip(converters.sets, forms, strict=True))
        self._converters = converters

    @property
    def is_possible(self) -> bool:
        """See ``ColumnForm``."""
        return any(form.is_possible for form in self._forms.values())

    def block_rows(self, rows: int, cells_max: int) -> int:
        """See ``ColumnForm``."""
        return min(form.block_rows(rows, cells_max) for form in self._forms.values())

    def decode(self, block: Block) -> Iterator[Columns]:
        """See ``ColumnForm``."""
        for converters, rows in self._parts(block):
            form = self._forms[converters]
            if rows is None:
                yield from form.decode(block)
                continue
            part = Block(block.table.take(pa.array(rows)))
            for decoded in form.decode(part):
                yield _moved(decoded, rows)

    def _parts(self, block: Block) -> Iterator[tuple[RecordConverters, Rows | None]]:
        """Yield the converters of a block and their rows; None for all rows."""
        column = block.column("topic")
        assert column is not None
        encoded = column.dictionary_encode()
        converter_sets = [self._converters.of(topic) for topic in encoded.dictionary.to_pylist()]
        distinct = list(dict.fromkeys(converter_sets))
        if len(distinct) == 1:
            yield distinct[0], None
            return
        by_topic = np.array([distinct.index(each) for each in converter_sets], np.int64)
        codes = by_topic[encoded.indices.to_numpy(zero_copy_only=False)]
        for code, converters in enumerate(distinct):
            yield converters, np.flatnonzero(codes == code)


def _moved(columns: Columns, rows: Rows) -> Columns:
    """Return decoded rows of a part of a block, with their positions in the block."""
    return dataclasses.replace(
        columns,
        places=rows[columns.places],
        unexpected=rows[columns.unexpected],
        dropped=None if columns.dropped is None else rows[columns.dropped],
    )


def column_form(
    spec: PipelineSpec,
    tables: Iterable[AlikeTables],
    paths: Iterable[tuple[str, ...]],
    reference: ReferencePath,
    *,
    uses_schema: bool = False,
) -> ColumnForm | TopicForms:
    """Return the column form of a connector; see ``ColumnForm`` for the arguments."""
    table_list, path_list = list(tables), list(paths)
    forms = [
        ColumnForm(spec, table_list, path_list, reference, each, uses_schema=uses_schema)
        for each in reference.converters.sets
    ]
    return forms[0] if len(forms) == 1 else TopicForms(forms, reference.converters)

"""Message keys as columns, for transformations that put them into the value."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.records.converters.converter import Converter
from connect.records.converters.json_converter import JsonConverter
from connect.records.converters.plain_converters import StringConverter
from worker.batch.blocks import Block, one_chunk
from worker.batch.pipeline_spec import is_plain_json
from worker.convert.texts import refused_rows
from worker.decode.registered_messages import registered_form
from worker.decode.scanned_json import ScannedJson, json_decoder, together
from worker.decode.typed_json import Envelopes
from worker.transforms.rows import Mask, Positions, as_mask, struct_of, valid

# of texts that are JSON: those that are not were left out before
_OBJECT: Final = rb"^[ \t\r\n]*\{"


class KeyReader:
    """Reads keys; what their converter refuses was left out before.

    Args:
        config: the connector's.
        converter: the reference's of keys; not of packed ones.
        kind: what the keys are needed as, of plain JSON.

    Attributes:
        is_typed: whether keys have a schema.
    """

    def __init__(self, config: ConnectorConfig, converter: Converter, kind: pa.DataType) -> None:
        self._is_text = isinstance(converter, StringConverter) and converter.is_utf8
        self._decoder: ScannedJson | None = None
        self._envelopes: Envelopes | None = None
        self._has_no_fields = False
        self._registered = registered_form(converter, "key", config)
        if is_plain_json(config.key_converter):
            if pa.types.is_struct(kind):
                fields = {f.name: f.type for f in kind}
                evolves = config.evolve_schema_enabled
                self._decoder = json_decoder(fields, report_unexpected=evolves, keeps=evolves)
                self._has_no_fields = not fields
        elif isinstance(converter, JsonConverter) and converter.is_enveloped:
            self._envelopes = Envelopes(converter)
        self.is_typed = not is_plain_json(config.key_converter)

    def read(self, block: Block, places: Positions) -> tuple[pa.Array, Mask | None]:
        """The keys of some rows, null where there is none, and rows only the reference reads.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """
        keys = block.column("key")
        if keys is None or keys.null_count == len(keys):
            return pa.nulls(len(places)), None
        given = keys.take(pa.array(places))
        present = np.flatnonzero(valid(given))
        values = given.take(pa.array(present))
        if self._is_text:
            return texts(given)
        if self._has_no_fields:
            rows = np.flatnonzero(as_mask(pc.match_substring_regex(values, _OBJECT)))
            table = pa.table({})
        else:
            table, rows = self._decoded(values, block, places[present])
        ambiguous = np.zeros(len(places), np.bool_)
        ambiguous[present] = True
        if table is None:
            return pa.nulls(len(places)), ambiguous
        ambiguous[present[rows]] = False
        index = np.full(len(places), -1, np.int64)
        index[present[rows]] = np.arange(len(rows))
        columns = {n: one_chunk(table.column(n)) for n in table.column_names}
        whole = struct_of(columns, len(rows))
        return whole.take(pa.array(index, mask=index < 0)), ambiguous

    def _decoded(
        self, values: pa.Array, block: Block, places: Positions
    ) -> tuple[pa.Table | None, Positions]:
        """The fields of keys, of one schema only, and which rows have them."""
        found: list[tuple[pa.Table, Positions]] = []
        if self._decoder is not None:
            table, rows, _ = together(list(self._decoder.decode(values)), len(values))
            found = [(table, rows)]
        elif self._registered is not None:
            found = [(p.table, p.rows) for p in self._registered.decode(values, block, places)]
        elif self._envelopes is not None:
            found = [(table, rows) for _, table, rows in self._envelopes.decode(values)]
        found = [(t, r) for t, r in found if len(r) and t.num_columns]
        return max(found, key=lambda one: len(one[1])) if found else (None, places[:0])


def texts(given: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Bytes as UTF-8, and rows that are none."""
    try:
        return given.cast(pa.string()), None
    except pa.ArrowInvalid:
        ambiguous = refused_rows(given, lambda part: part.cast(pa.string()))
    kept = pc.if_else(pa.array(~ambiguous), given, pa.scalar(None, given.type))
    return kept.cast(pa.string()), ambiguous

"""Message keys: which ones the converter refuses, and keys as columns for transformations."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.records.converters.column_converter import CustomColumnConverter
from connect.records.converters.compressed import DecompressingConverter
from connect.records.converters.converter import Converter
from connect.records.converters.json.json_converter import JsonConverter
from connect.records.converters.plain_converters import StringConverter
from worker.batch.blocks import Block, one_chunk
from worker.batch.pipeline_spec import converter_name, is_plain_json, is_total
from worker.convert.texts import refused_rows
from worker.decode.json_decoder import JsonDecoder
from worker.decode.registered_messages import registered_form
from worker.decode.scanned_json import ScannedJson, json_decoder, together
from worker.decode.typed_json import Envelopes
from worker.transforms.rows import Mask, Positions, as_mask, struct_of, valid

_SIZES: Final = {
    name: struct.calcsize(layout)
    for name, layout in (
        ("Short", ">h"),
        ("Integer", ">i"),
        ("Long", ">q"),
        ("Float", ">f"),
        ("Double", ">d"),
    )
}
_SCALAR: Final = rb"^(?:-?[1-9][0-9]{0,17}|0|true|false|null|\"[ !#-\[\]-~]*\")$"
# applied to keys that are JSON: the others were left out before
_OBJECT: Final = rb"^[ \t\r\n]*\{"


class KeyCheck:
    """Finds the keys that their converter refuses, or may refuse.

    Args:
        config: the connector's.
        converter: the record path's of keys.
    """

    def __init__(self, config: ConnectorConfig, converter: Converter) -> None:
        self._config = config.key_converter
        self._is_compressed = isinstance(converter, DecompressingConverter)
        bare = uncompressed(converter)
        self._registered = registered_form(bare, "key", config)
        self._envelopes = envelopes_of(bare)
        self._columns = bare if isinstance(bare, CustomColumnConverter) else None
        self._json = JsonDecoder({}, report_unexpected=False)

    def refused(self, block: Block) -> Mask:
        """Return the rows of a block whose key is refused, or may be.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """
        ambiguous = np.zeros(block.count, np.bool_)
        keys = block.column("key")
        if keys is None or keys.null_count == len(keys) or is_total(self._config):
            return ambiguous
        present: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
        if self._is_compressed:
            return present
        size = _SIZES.get(converter_name(self._config))
        if size is not None:
            lengths = pc.fill_null(pc.binary_length(keys), size).to_numpy(zero_copy_only=False)
            wrong: Mask = present & (lengths != size)
            return wrong
        places = np.flatnonzero(present)
        values = keys.take(pa.array(places))
        if self._registered is not None:
            ambiguous[places] = self._registered.refused(values, block, places)
            return ambiguous
        if self._envelopes is not None:
            ambiguous[places] = True
            for _, _, rows in self._envelopes.decode(values):
                ambiguous[places[rows]] = False
            return ambiguous
        if self._columns is not None:
            ambiguous[places[self._columns.tried(values)[1]]] = True
            return ambiguous
        if not is_plain_json(self._config):
            return present
        simple = pc.match_substring_regex(values, _SCALAR).to_numpy(zero_copy_only=False)
        places = places[~simple]
        if len(places):
            decoded = self._json.decode(values.filter(pa.array(~simple)))
            ambiguous[places[decoded.refused]] = True
        return ambiguous


class KeyReader:
    """Reads keys that their converter does not refuse.

    Args:
        config: the connector's.
        converter: the record path's of keys, not compressed.
        kind: type of keys that are plain JSON.

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
        else:
            self._envelopes = envelopes_of(converter)
        self.is_typed = not is_plain_json(config.key_converter)

    def read(self, block: Block, places: Positions) -> tuple[pa.Array, Mask | None]:
        """Return the keys of some rows, null where there is none, and the ambiguous rows.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """
        keys = block.column("key")
        if keys is None or keys.null_count == len(keys):
            return pa.nulls(len(places)), None
        chosen_keys = keys.take(pa.array(places))
        present = np.flatnonzero(valid(chosen_keys))
        values = chosen_keys.take(pa.array(present))
        if self._is_text:
            return texts(chosen_keys)
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
        """Return the fields of keys of the most frequent schema, and the rows that have it."""
        parts: list[tuple[pa.Table, Positions]] = []
        if self._decoder is not None:
            table, rows, _ = together(list(self._decoder.decode(values)), len(values))
            parts = [(table, rows)]
        elif self._registered is not None:
            parts = [(p.table, p.rows) for p in self._registered.decode(values, block, places)]
        elif self._envelopes is not None:
            parts = [(table, rows) for _, table, rows in self._envelopes.decode(values)]
        parts = [(t, r) for t, r in parts if len(r) and t.num_columns]
        return max(parts, key=lambda part: len(part[1])) if parts else (None, places[:0])


def uncompressed(converter: Converter) -> Converter:
    """Return the converter behind a compression."""
    return converter.inner if isinstance(converter, DecompressingConverter) else converter


def envelopes_of(converter: Converter) -> Envelopes | None:
    """Return what decodes JSON that brings its schema; None for other converters."""
    if isinstance(converter, JsonConverter) and converter.is_enveloped:
        return Envelopes(converter)
    return None


def texts(column: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Return bytes as text, and the rows that are not UTF-8."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        ambiguous = refused_rows(column, lambda part: part.cast(pa.string()))
    kept = pc.if_else(pa.array(~ambiguous), column, pa.scalar(None, column.type))
    return kept.cast(pa.string()), ambiguous

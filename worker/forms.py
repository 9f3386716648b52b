"""Which records have a column form, and the columns of those.

JSON values without schemas have one, in tables whose columns are found by their own names. Keys
are looked at only to find those their converter refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.config.connector import ConverterConfig
from worker.blocks import Block
from worker.decode import JsonDecoder
from worker.plan import PipelineSpec, converter_name, is_total
from worker.records import NAME_MAPPING
from worker.shapes import guessed_fields, leaf_count
from worker.tables import TableWriter

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_ROWS_MIN: Final = 256
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


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of a block that were decoded.

    Attributes:
        table: the fields of all tables, in decoded types.
        places: positions of its rows in the block.
        unexpected: positions in the block of decoded rows with fields no table has; only with
            schema evolution.
    """

    table: pa.Table
    places: Rows
    unexpected: Rows


class ColumnForm:
    """Decodes what has a column form.

    Args:
        spec: what to do.
        tables: all tables of the spec.
        paths: of fields that are needed whatever the tables' columns: route, operation.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        tables: Iterable[TableWriter],
        paths: Iterable[tuple[str, ...]],
    ) -> None:
        config = spec.config
        self._key = config.key_converter
        self._key_decoder = JsonDecoder({}, report_unexpected=False)
        self._has_headers = not is_total(config.header_converter)
        self._decoder: JsonDecoder | None = None
        self._fields = 0
        listed = list(tables)
        if (
            not spec.reference_only
            and not config.transforms
            and _is_plain_json(config.value_converter)
            and not config.schema_case_insensitive
            and all(has_own_names(table) for table in listed)
        ):
            fields = guessed_fields((table.schema.fields for table in listed), paths)
            self._fields = leaf_count(fields.values())
            self._decoder = JsonDecoder(fields, report_unexpected=config.evolve_schema_enabled)

    def block_rows(self, rows: int, cells_max: int) -> int:
        """How many rows to decode at once, when every row has a cell for every table's fields."""
        return min(rows, max(cells_max // max(self._fields, 1), _ROWS_MIN))

    def decode(self, block: Block) -> Columns | None:
        """Decode a block; None when nothing of it has a column form."""
        if self._decoder is None:
            return None
        skip = block.tombstones
        skip = skip | self._refused_keys(block)
        if self._has_headers and (headers := block.column("headers")) is not None:
            counted = pc.fill_null(pc.list_value_length(headers), 0)
            skip = skip | (counted.to_numpy(zero_copy_only=False) > 0)
        values, places = block.values, np.arange(block.count)
        if skip.any():
            places = np.flatnonzero(~skip)
            values = values.take(pa.array(places))
        decoded = self._decoder.decode(values)
        unexpected = places[decoded.unexpected]
        if decoded.rows is not None:
            places = places[decoded.rows]
        return Columns(decoded.table, places, unexpected)

    def _refused_keys(self, block: Block) -> Mask:
        """Rows whose key the converter refuses, or may refuse."""
        doubt = np.zeros(block.count, np.bool_)
        keys = block.column("key")
        if keys is None or keys.null_count == len(keys) or is_total(self._key):
            return doubt
        valid: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
        size = _SIZES.get(converter_name(self._key))
        if size is not None:
            lengths = pc.fill_null(pc.binary_length(keys), size).to_numpy(zero_copy_only=False)
            wrong: Mask = valid & (lengths != size)
            return wrong
        if not _is_plain_json(self._key):
            return valid
        places = np.flatnonzero(valid)
        present = keys.take(pa.array(places))
        simple = pc.match_substring_regex(present, _SCALAR).to_numpy(zero_copy_only=False)
        places = places[~simple]
        if len(places):
            decoded = self._key_decoder.decode(present.filter(pa.array(~simple)))
            doubt[places[decoded.refused]] = True
        return doubt


_SCALAR: Final = rb"^(?:-?[1-9][0-9]{0,17}|0|true|false|null|\"[ !#-\[\]-~]*\")$"


def _is_plain_json(converter: ConverterConfig) -> bool:
    enabled = str(converter.options.get("schemas.enable", "true")).strip().lower()
    return converter_name(converter).lower() == "json" and enabled == "false"


def has_own_names(table: TableWriter) -> bool:
    """Whether record fields go by the names of the columns, not by a name mapping."""
    mapping = table.plan.properties.get(NAME_MAPPING)
    schema: Schema = table.schema
    return not mapping or parse_mapping_from_json(mapping) == schema.name_mapping

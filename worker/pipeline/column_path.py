"""Records of a block as columns.

Rules of this file:
- JSON values without schemas have a column form, and so have values of converters with schemas, in
  tables whose columns are found by their own names.
- Keys are read only to find those that their converter refuses, or where a transformation uses
  them.
- A record that is not decoded, or that is unexpected, goes through the record path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from connect.records.converters.compressed import DecompressingConverter
from connect.records.converters.record_converters import RecordConverters
from connect.records.record_path import ReferencePath
from worker.batch.blocks import Block
from worker.batch.pipeline_spec import PipelineSpec, is_plain_json, is_total
from worker.decode.decoded_rows import Columns
from worker.decode.json_types import guessed_fields, leaf_count
from worker.pipeline.key_columns import KeyCheck, KeyReader, uncompressed
from worker.pipeline.transformed_rows import ColumnChain
from worker.pipeline.value_columns import ValueColumns, inflated, json_values, schema_values
from worker.transforms.rows import ChainPlan, ColumnStep
from worker.transforms.step_chain import keep_schemas, planned, steps_for, take_whole
from worker.write.table_writer import TableWriter
from worker.write.table_writers import AlikeTables

Mask = npt.NDArray[np.bool_]

_ROWS_MIN: Final = 256


class ColumnForm:
    """Decodes the records that have a column form, and runs transformations over their columns.

    Args:
        spec: of the Spark task.
        tables: all tables of the spec.
        paths: of fields that are needed in addition to the tables' columns: route, operation.
        reference: reads samples of records.
        converters: those of the records, which the record path uses, too: both must read the same
            schemas.
        uses_schema: whether tables are named by the schemas of values.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        tables: Iterable[AlikeTables],
        paths: Iterable[tuple[str, ...]],
        reference: ReferencePath,
        converters: RecordConverters,
        *,
        uses_schema: bool = False,
    ) -> None:
        config = converters.config
        self._has_headers = not is_total(config.header_converter)
        self._is_compressed = isinstance(converters.value, DecompressingConverter)
        self._keys = KeyCheck(config, converters.key)
        self._values: ValueColumns | None = None
        self._chain: ColumnChain | None = None
        self._names: tuple[str, ...] = ()
        self._fields = 0
        listed = list(tables)
        steps = _column_steps(spec, listed, uses_schema=uses_schema)
        if steps is not None:
            alike = {t.sample.columns_key: t.sample.schema.fields for t in listed}
            fields = guessed_fields(alike.values(), paths, has_maps=not steps)
            is_text = is_plain_json(config.value_converter)
            evolves = config.evolve_schema_enabled
            plan = planned(steps, fields, evolves=evolves, is_text=is_text)
            if plan is not None:
                self._names = tuple(fields)
                self._values = _values(converters, steps, plan, listed)
                self._fields = leaf_count((plan.fields if is_text else fields).values())
                if steps:
                    keys = _key_reader(converters, plan)
                    self._chain = ColumnChain(
                        steps, fields, config, listed, reference=reference, keys=keys
                    )

    @property
    def is_possible(self) -> bool:
        """Whether any record has a column form."""
        return self._values is not None

    def block_rows(self, rows: int, cells_max: int) -> int:
        """Return how many rows to decode at once, so that their cells are bounded.

        Args:
            rows: the most that a block may have.
            cells_max: the most cells; each row has one for each field of the tables.
        """
        return min(rows, max(cells_max // max(self._fields, 1), _ROWS_MIN))

    def decode(self, block: Block) -> Iterator[Columns]:
        """Decode the records of a block that have a column form.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """
        if self._values is None:
            return
        values, places = block.values, np.arange(block.count)
        skip = self._skipped(block)
        if skip.any():
            places = np.flatnonzero(~skip)
            values = values.take(pa.array(places))
        if self._is_compressed:
            values, good = inflated(values)
            places = places[good]
        is_typed = self._values.is_typed
        for columns in self._values.decode(values, block, places):
            if self._chain is not None:
                yield from self._chain.run(block, columns, is_typed=is_typed)
            elif is_typed:
                missing = frozenset(self._names).difference(columns.table.column_names)
                named = _with_names(columns.table, self._names)
                yield replace(columns, table=named, missing=missing)
            else:
                yield columns

    def _skipped(self, block: Block) -> Mask:
        """Return records that have no column form, independent of their value."""
        skip = block.tombstones | self._keys.refused(block)
        if self._has_headers and (headers := block.column("headers")) is not None:
            counted = pc.fill_null(pc.list_value_length(headers), 0)
            skip = skip | (counted.to_numpy(zero_copy_only=False) > 0)
        return skip


def _column_steps(
    spec: PipelineSpec, tables: list[AlikeTables], *, uses_schema: bool
) -> tuple[ColumnStep, ...] | None:
    """Return the transformations as column steps; None where there is no column form."""
    config = spec.config
    steps = steps_for(config)
    if (
        steps is None
        or spec.reference_only
        or config.schema_case_insensitive
        or (uses_schema and not keep_schemas(steps))
        or not all(has_own_names(alike.sample) for alike in tables)
    ):
        return None
    return steps


def _values(
    converters: RecordConverters,
    steps: tuple[ColumnStep, ...],
    plan: ChainPlan,
    tables: list[AlikeTables],
) -> ValueColumns | None:
    config = converters.config
    if is_plain_json(config.value_converter):
        # a transformation may make a null of a field that is missing
        has_defaults = not steps and any(
            field.write_default is not None
            for alike in tables
            for field in alike.sample.schema.fields
        )
        return json_values(
            plan,
            evolves=config.evolve_schema_enabled,
            keeps=bool(steps),
            has_defaults=has_defaults,
        )
    # transformations may change the schema, so the chain finds the tables that it asks to change
    asking = [] if steps else tables
    value = uncompressed(converters.value)
    return schema_values(value, config, asking, takes_whole=take_whole(steps))


def _key_reader(converters: RecordConverters, plan: ChainPlan) -> KeyReader | None:
    if plan.key is None or isinstance(converters.key, DecompressingConverter):
        return None
    return KeyReader(converters.config, converters.key, plan.key)


def _with_names(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return the columns of some names; columns that the records lack are null."""
    present = set(table.column_names)
    columns = [table[n] if n in present else pa.nulls(table.num_rows) for n in names]
    return pa.Table.from_arrays(columns, names=list(names))


def has_own_names(table: TableWriter) -> bool:
    """Return whether record fields are found by column names, not by a name mapping."""
    mapping = table.plan.properties.get(NAME_MAPPING_PROPERTY)
    schema: Schema = table.schema
    return not mapping or parse_mapping_from_json(mapping) == schema.name_mapping

"""Which records have a column form, and the columns of those.

JSON values without schemas have one, and those of converters with schemas, in tables whose columns
are found by their own names. Keys are looked at only to find those their converter refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.records.converters.compressed import DecompressingConverter, NotGzip, inflate
from connect.records.converters.converter import Converter
from connect.records.converters.json_converter import JsonConverter
from connect.records.converters.plain_converters import ByteArrayConverter, StringConverter
from connect.records.record_path import ReferencePath
from worker.batch.blocks import Block
from worker.batch.pipeline_spec import PipelineSpec, converter_name, is_plain_json, is_total
from worker.decode.decoded_rows import Columns
from worker.decode.json_decoder import JsonDecoder
from worker.decode.json_types import guessed_fields, leaf_count
from worker.decode.registered_messages import RegisteredForm, registered_form, unfit_tables
from worker.decode.scanned_json import ScannedJson, json_decoder
from worker.decode.typed_json import Envelopes
from worker.pipeline.key_columns import KeyReader, texts
from worker.pipeline.record_fallback import NAME_MAPPING
from worker.pipeline.transformed_rows import ColumnChain
from worker.transforms.rows import ChainPlan, ColumnStep, holding, quoted
from worker.transforms.step_chain import keep_schemas, planned, steps_for, take_whole
from worker.write.table_writer import TableWriter

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_ROWS_MIN: Final = 256
_INFLATED_BLOCK_MAX: Final = 512 * 2**20
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


class ColumnForm:
    """Decodes what has a column form.

    Args:
        spec: what to do.
        tables: all tables of the spec.
        paths: of fields that are needed whatever the tables' columns: route, operation.
        reference: whose converters are used where both paths must see the same schemas.
        uses_schema: whether tables are named by the schemas of values.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        tables: Iterable[TableWriter],
        paths: Iterable[tuple[str, ...]],
        reference: ReferencePath,
        *,
        uses_schema: bool = False,
    ) -> None:
        config = spec.config
        self._key = config.key_converter
        self._key_decoder = JsonDecoder({}, report_unexpected=False)
        self._has_headers = not is_total(config.header_converter)
        self._decoder: ScannedJson | None = None
        self._registered: RegisteredForm | None = None
        self._envelopes: Envelopes | None = None
        self._wholes: StringConverter | ByteArrayConverter | None = None
        self._config = config
        self._registered_keys = registered_form(_bare(reference.key), "key", config)
        self._enveloped_keys = _envelopes(_bare(reference.key))
        self._is_gzip = isinstance(reference.value, DecompressingConverter)
        self._is_gzip_key = isinstance(reference.key, DecompressingConverter)
        self._fields = 0
        listed = self._listed = list(tables)
        self._steps = steps_for(config)
        if uses_schema and self._steps is not None and not keep_schemas(self._steps):
            self._steps = None
        self._shadowed: tuple[str, ...] = ()
        self._chain: ColumnChain | None = None
        if (
            spec.reference_only
            or self._steps is None
            or config.schema_case_insensitive
            or not all(has_own_names(table) for table in listed)
        ):
            return
        alike = {table.columns_key: table.schema.fields for table in listed}
        fields = guessed_fields(alike.values(), paths, has_maps=not self._steps)
        self._wanted = fields
        self._names = tuple(fields)
        is_text = is_plain_json(config.value_converter)
        evolves = config.evolve_schema_enabled
        plan = planned(self._steps, fields, evolves=evolves, is_text=is_text)
        if plan is None:
            return
        if is_text:
            fields, self._shadowed = plan.fields, tuple(sorted(plan.shadowed))
            keeps = bool(self._steps)
            self._decoder = json_decoder(
                fields, report_unexpected=evolves, keeps=keeps, embedded=plan.embedded
            )
        else:
            value = _bare(reference.value)
            self._envelopes = _envelopes(value)
            # what a schema asks for is what transformations leave of it
            asking = [] if self._steps else listed
            if isinstance(value, StringConverter | ByteArrayConverter) and take_whole(self._steps):
                self._wholes = value
            self._registered = registered_form(value, "value", config, asking)
        if self._steps:
            self._chain = self._chain_of(self._steps, plan, reference)
        self._fields = leaf_count(fields.values())

    def _chain_of(
        self, steps: tuple[ColumnStep, ...], plan: ChainPlan, reference: ReferencePath
    ) -> ColumnChain:
        kind, keys = plan.key, None
        if kind is not None and not self._is_gzip_key:
            keys = KeyReader(self._config, reference.key, kind)
        wanted, listed = self._wanted, self._listed
        return ColumnChain(steps, wanted, self._config, listed, reference=reference, keys=keys)

    def block_rows(self, rows: int, cells_max: int) -> int:
        """How many rows to decode at once, when every row has a cell for every table's fields."""
        return min(rows, max(cells_max // max(self._fields, 1), _ROWS_MIN))

    def decode(self, block: Block) -> Iterator[Columns]:
        """Decode what of a block has a column form.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """
        forms = (self._decoder, self._registered, self._envelopes, self._wholes)
        if all(form is None for form in forms):
            return
        values, places = block.values, np.arange(block.count)
        skip = self._skipped(block)
        if skip.any():
            places = np.flatnonzero(~skip)
            values = values.take(pa.array(places))
        if self._is_gzip:
            values, good = inflated(values)
            places = places[good]
        if self._decoder is not None:
            for decoded in self._decoder.decode(values):
                rows = places if decoded.rows is None else places[decoded.rows]
                found = Columns(decoded.table, rows, places[decoded.unexpected], seen=decoded.seen)
                if self._chain is None:
                    yield found
                else:
                    found = self._without_shadowed(block, found)
                    yield from self._chain.run(block, found, is_typed=False)
            return
        for found in self._of_schemas(values, block, places):
            if self._chain is None:
                yield replace(found, table=_with_names(found.table, self._names))
            else:
                yield from self._chain.run(block, found, is_typed=True)

    def _of_schemas(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """Decode what a schema describes, schema by schema; every field of it."""
        nothing = np.empty(0, np.int64)
        if self._registered is not None:
            for part in self._registered.decode(values, block, places):
                yield Columns(
                    part.table, places[part.rows], nothing, part.unfit, schema_name=part.name
                )
        elif self._envelopes is not None:
            for schema, payloads, rows in self._envelopes.decode(values):
                unfit: frozenset[str] = frozenset()
                if self._chain is None:
                    unfit = unfit_tables(schema, self._config, self._listed)
                yield Columns(payloads, places[rows], nothing, unfit, schema_name=schema.name)
        elif self._wholes is not None:
            column, rows = whole_values(self._wholes, values)
            yield Columns(pa.table({"": column}), places[rows], nothing, is_whole=True)

    def _skipped(self, block: Block) -> Mask:
        """Records without a column form, whatever their value."""
        skip = block.tombstones | self._refused_keys(block)
        if self._has_headers and (headers := block.column("headers")) is not None:
            counted = pc.fill_null(pc.list_value_length(headers), 0)
            skip = skip | (counted.to_numpy(zero_copy_only=False) > 0)
        return skip

    def _without_shadowed(self, block: Block, found: Columns) -> Columns:
        """The rows whose text has no field that decides which one of two is meant."""
        seen = found.seen
        if not self._shadowed or (seen is not None and seen.names.isdisjoint(self._shadowed)):
            return found
        values = block.values.take(pa.array(found.places))
        keep = ~holding(values, [quoted(name) for name in self._shadowed])
        table = found.table.filter(pa.array(keep)).combine_chunks()
        left = np.isin(found.unexpected, found.places[keep])
        return replace(
            found, table=table, places=found.places[keep], unexpected=found.unexpected[left]
        )

    def _refused_keys(self, block: Block) -> Mask:
        """Rows whose key the converter refuses, or may refuse."""
        ambiguous = np.zeros(block.count, np.bool_)
        keys = block.column("key")
        if keys is None or keys.null_count == len(keys) or is_total(self._key):
            return ambiguous
        valid: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
        if self._is_gzip_key:
            return valid
        size = _SIZES.get(converter_name(self._key))
        if size is not None:
            lengths = pc.fill_null(pc.binary_length(keys), size).to_numpy(zero_copy_only=False)
            wrong: Mask = valid & (lengths != size)
            return wrong
        places = np.flatnonzero(valid)
        present = keys.take(pa.array(places))
        if self._registered_keys is not None:
            ambiguous[places] = self._registered_keys.refused(present, block, places)
            return ambiguous
        if self._enveloped_keys is not None:
            ambiguous[places] = True
            for _, _, rows in self._enveloped_keys.decode(present):
                ambiguous[places[rows]] = False
            return ambiguous
        if not is_plain_json(self._key):
            return valid
        simple = pc.match_substring_regex(present, _SCALAR).to_numpy(zero_copy_only=False)
        places = places[~simple]
        if len(places):
            decoded = self._key_decoder.decode(present.filter(pa.array(~simple)))
            ambiguous[places[decoded.refused]] = True
        return ambiguous


_SCALAR: Final = rb"^(?:-?[1-9][0-9]{0,17}|0|true|false|null|\"[ !#-\[\]-~]*\")$"


def _bare(converter: Converter) -> Converter:
    """The converter behind a compression."""
    return converter.inner if isinstance(converter, DecompressingConverter) else converter


def _envelopes(converter: Converter) -> Envelopes | None:
    if isinstance(converter, JsonConverter) and converter.is_enveloped:
        return Envelopes(converter)
    return None


def whole_values(
    converter: StringConverter | ByteArrayConverter, values: pa.Array
) -> tuple[pa.Array, Rows]:
    """Values without fields, and which of them are read here."""
    if isinstance(converter, ByteArrayConverter):
        return values, np.arange(len(values))
    if not converter.is_utf8:
        return pa.array([], pa.string()), np.empty(0, np.int64)
    column, ambiguous = texts(values)
    if ambiguous is None:
        return column, np.arange(len(values))
    return column.filter(pa.array(~ambiguous)), np.flatnonzero(~ambiguous)


def _with_names(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The columns asked for, those that the records lack as nulls."""
    known = set(table.column_names)
    columns = [table[n] if n in known else pa.nulls(table.num_rows) for n in names]
    return pa.Table.from_arrays(columns, names=list(names))


def inflated(values: pa.Array) -> tuple[pa.Array, Rows]:
    """Payloads inflated, and the positions of those that could be."""
    payloads: list[bytes] = []
    good: list[int] = []
    size = 0
    for i, value in enumerate(values):
        try:
            payload = inflate(value.as_py())
        except NotGzip:
            continue
        size += len(payload)
        if size > _INFLATED_BLOCK_MAX:
            break  # the others one by one
        payloads.append(payload)
        good.append(i)
    return pa.array(payloads, pa.binary()), np.array(good, np.int64)


def has_own_names(table: TableWriter) -> bool:
    """Whether record fields go by the names of the columns, not by a name mapping."""
    mapping = table.plan.properties.get(NAME_MAPPING)
    schema: Schema = table.schema
    return not mapping or parse_mapping_from_json(mapping) == schema.name_mapping

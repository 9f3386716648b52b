"""Message values as columns, by kind of converter.

Rules of this file:
- A value that is left out is not refused: the record path takes its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.config.connector import ConnectorConfig
from connect.records.converters.column_converter import CustomColumnConverter
from connect.records.converters.compressed import NotGzip, inflate
from connect.records.converters.converter import Converter
from connect.records.converters.plain_converters import ByteArrayConverter, StringConverter
from worker.batch.blocks import Block
from worker.decode.decoded_rows import Columns
from worker.decode.registered_messages import RegisteredForm, registered_form, unfit_tables
from worker.decode.scanned_json import ScannedJson, json_decoder
from worker.decode.typed_json import Envelopes
from worker.pipeline.key_columns import envelopes_of, texts
from worker.transforms.rows import ChainPlan, holding, quoted
from worker.write.table_writers import AlikeTables

Rows = npt.NDArray[np.int64]

_INFLATED_BLOCK_MAX: Final = 512 * 2**20
_NOTHING: Final = np.empty(0, np.int64)


class ValueColumns(Protocol):
    """Decodes values.

    Attributes:
        is_typed: whether the values have schemas.
    """

    is_typed: bool

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """Decode values.

        Args:
            values: binary, no nulls, not compressed.
            block: of the records.
            places: the records' positions in the block.

        Yields:
            decoded rows, a row for each record.

        Raises:
            RetriableError, ConfigError: a schema registry does not answer, or refuses us.
        """


class PlainJsonValues:
    """JSON without schemas.

    Args:
        decoder: decodes the documents.
        shadowed: names of fields; the record path takes documents that may hold one of them.
        has_defaults: whether to find documents without any null.
    """

    is_typed = False

    def __init__(
        self, decoder: ScannedJson, shadowed: Sequence[str], *, has_defaults: bool = False
    ) -> None:
        self._decoder = decoder
        self._shadowed = tuple(sorted(shadowed))
        self._has_defaults = has_defaults

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """See ``ValueColumns``."""
        del block
        for decoded in self._decoder.decode(values):
            rows = places if decoded.rows is None else places[decoded.rows]
            columns = Columns(decoded.table, rows, places[decoded.unexpected], seen=decoded.seen)
            if self._has_defaults or self._shadowed:
                # not those of the block, which may be compressed
                texts = values if decoded.rows is None else values.take(pa.array(decoded.rows))
                if self._has_defaults:
                    columns = replace(columns, nulls_are_missing=~holding(texts, ["null"]))
                columns = self._without_shadowed(texts, columns)
            yield columns

    def _without_shadowed(self, texts: pa.Array, columns: Columns) -> Columns:
        seen = columns.seen
        if not self._shadowed or (seen is not None and seen.names.isdisjoint(self._shadowed)):
            return columns
        keep = ~holding(texts, [quoted(name) for name in self._shadowed])
        table = columns.table.filter(pa.array(keep)).combine_chunks()
        left = np.isin(columns.unexpected, columns.places[keep])
        return replace(
            columns, table=table, places=columns.places[keep], unexpected=columns.unexpected[left]
        )


class RegisteredValues:
    """Values whose schemas are in a registry or a file."""

    is_typed = True

    def __init__(self, form: RegisteredForm) -> None:
        self._form = form

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """See ``ValueColumns``."""
        for part in self._form.decode(values, block, places):
            yield Columns(
                part.table, places[part.rows], _NOTHING, part.unfit, schema_name=part.name
            )


class EnvelopedValues:
    """JSON that brings its schema.

    Args:
        envelopes: decodes the documents.
        config: the connector's.
        tables: those that a schema may ask to change; none where transformations change schemas.
    """

    is_typed = True

    def __init__(
        self, envelopes: Envelopes, config: ConnectorConfig, tables: Sequence[AlikeTables]
    ) -> None:
        self._envelopes = envelopes
        self._config = config
        self._tables = tables

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """See ``ValueColumns``."""
        del block
        for schema, payloads, rows in self._envelopes.decode(values):
            unfit: frozenset[str] = frozenset()
            if self._tables:
                unfit = unfit_tables(schema, self._config, self._tables)
            yield Columns(payloads, places[rows], _NOTHING, unfit, schema_name=schema.name)


class CustomValues:
    """Values of a user's converter over columns.

    Args:
        converter: the user's.
        config: the connector's.
        tables: those that the schema may ask to change.
    """

    is_typed = True

    def __init__(
        self,
        converter: CustomColumnConverter,
        config: ConnectorConfig,
        tables: Sequence[AlikeTables],
    ) -> None:
        self._converter = converter
        self._unfit = unfit_tables(converter.schema, config, tables)

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """See ``ValueColumns``."""
        del block
        table, bad = self._converter.tried(values)
        if not table.num_rows:
            return
        good = np.delete(places, bad)
        yield Columns(
            table.combine_chunks(),
            good,
            _NOTHING,
            self._unfit,
            schema_name=self._converter.schema.name,
        )


class WholeValues:
    """Text or bytes without fields, which a transformation puts into a field."""

    is_typed = True

    def __init__(self, converter: StringConverter | ByteArrayConverter) -> None:
        self._converter = converter

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[Columns]:
        """See ``ValueColumns``."""
        del block
        column, rows = whole_values(self._converter, values)
        yield Columns(pa.table({"": column}), places[rows], _NOTHING, is_whole=True)


def json_values(
    plan: ChainPlan, *, evolves: bool, keeps: bool, has_defaults: bool
) -> PlainJsonValues:
    """Return what decodes JSON without schemas.

    Args:
        plan: the fields to decode.
        evolves: whether records with fields that no table has are reported.
        keeps: see ``JsonDecoder``.
        has_defaults: see ``PlainJsonValues``; without transformations only.
    """
    decoder = json_decoder(
        plan.fields, report_unexpected=evolves, keeps=keeps, embedded=plan.embedded
    )
    return PlainJsonValues(decoder, tuple(plan.shadowed), has_defaults=has_defaults)


def schema_values(
    converter: Converter,
    config: ConnectorConfig,
    tables: Sequence[AlikeTables],
    *,
    takes_whole: bool,
) -> ValueColumns | None:
    """Return what decodes values of other converters; None where they have no column form.

    Args:
        converter: the record path's, not compressed.
        config: the connector's.
        tables: those that a schema may ask to change.
        takes_whole: whether the first transformation puts whole values into a field.
    """
    registered = registered_form(converter, "value", config, tables)
    if registered is not None:
        return RegisteredValues(registered)
    envelopes = envelopes_of(converter)
    if envelopes is not None:
        return EnvelopedValues(envelopes, config, tables)
    if isinstance(converter, CustomColumnConverter):
        return CustomValues(converter, config, tables)
    if takes_whole and isinstance(converter, StringConverter | ByteArrayConverter):
        return WholeValues(converter)
    return None


def whole_values(
    converter: StringConverter | ByteArrayConverter, values: pa.Array
) -> tuple[pa.Array, Rows]:
    """Return values without fields, and the rows that have one."""
    if isinstance(converter, ByteArrayConverter):
        return values, np.arange(len(values))
    if not converter.is_utf8:
        return pa.array([], pa.string()), _NOTHING
    column, ambiguous = texts(values)
    if ambiguous is None:
        return column, np.arange(len(values))
    return column.filter(pa.array(~ambiguous)), np.flatnonzero(~ambiguous)


def inflated(values: pa.Array) -> tuple[pa.Array, Rows]:
    """Return inflated payloads, and the positions of the values that they are of."""
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
            break  # the record path takes the others
        payloads.append(payload)
        good.append(i)
    return pa.array(payloads, pa.binary()), np.array(good, np.int64)

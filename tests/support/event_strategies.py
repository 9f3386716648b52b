"""Control events of every kind, for hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    FileContent,
    PartitionField,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from control_schemas.schemas import avro_name

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
BYTES = st.binary(max_size=24)
# Java's own classes print microseconds through nanoseconds in 64 bits: years 1677 to 2262
TIMESTAMP_US = st.integers(-(2**63) // 1000, (2**63 - 1) // 1000)

PARTITION_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXT,
    "binary": BYTES,
    "date": st.integers(-1_000_000, 5_000_000),
    "time": st.integers(0, 86_400_000_000 - 1),
    "timestamp": TIMESTAMP_US,
    "timestamptz": TIMESTAMP_US,
    "timestamp_ns": LONG,
    "timestamptz_ns": LONG,
    "uuid": st.binary(min_size=16, max_size=16),
    "decimal(9, 2)": st.integers(-(10**9) + 1, 10**9 - 1),
    "decimal(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1),
    "decimal(1, 1)": st.integers(-9, 9),
}
FIXED = {"fixed[3]": st.binary(min_size=3, max_size=3)}  # Java reads it and cannot show it


@st.composite
def partition_types(draw: st.DrawFn, *, is_java: bool) -> tuple[tuple[int, str, str], ...]:
    """Field id, name and type of each field of a partition tuple."""
    known = list(PARTITION_VALUES) if is_java else [*PARTITION_VALUES, *FIXED]
    types = draw(st.lists(st.sampled_from(known), max_size=4))
    # names must differ once they are rewritten: Avro takes no field twice
    names = draw(st.lists(NAME, min_size=len(types), max_size=len(types), unique_by=avro_name))
    return tuple(
        (1000 + i, name, text) for i, (name, text) in enumerate(zip(names, types, strict=True))
    )


@st.composite
def content_files(
    draw: st.DrawFn, contents: tuple[FileContent, ...], types: tuple[tuple[int, str, str], ...]
) -> ContentFile:
    """A file of one of the contents with one partition type."""
    content = draw(st.sampled_from(contents))
    values = {**PARTITION_VALUES, **FIXED}
    size = draw(COUNT)
    is_data = content is FileContent.DATA
    counts = st.none() | st.dictionaries(st.integers(0, 2**31 - 1), COUNT, max_size=4)
    bounds = st.none() | st.dictionaries(st.integers(0, 2**31 - 1), BYTES, max_size=4)
    offsets = sorted(draw(st.sets(st.integers(0, 2**40), max_size=3)))
    return ContentFile(
        content=content,
        file_path=draw(NAME),
        file_format=draw(st.sampled_from(["PARQUET", "ORC", "AVRO", "PUFFIN"])),
        spec_id=draw(st.none() | st.integers(0, 1000)),
        partition=tuple(
            PartitionField(field_id, name, text, draw(st.none() | values[text]))
            for field_id, name, text in types
        ),
        record_count=draw(COUNT),
        file_size_in_bytes=size,
        column_sizes=draw(counts),
        value_counts=draw(counts),
        null_value_counts=draw(counts),
        nan_value_counts=draw(counts),
        lower_bounds=draw(bounds),
        upper_bounds=draw(bounds),
        key_metadata=draw(st.none() | BYTES),
        split_offsets=tuple(offsets) if offsets and offsets[-1] < size else None,
        equality_ids=(
            tuple(draw(st.lists(st.integers(1, 100), min_size=1, max_size=3)))
            if content is FileContent.EQUALITY_DELETES
            else None
        ),
        sort_order_id=draw(st.none() | st.integers(0, 5)),
        first_row_id=draw(st.none() | COUNT) if is_data else None,
        referenced_data_file=None if is_data else draw(st.none() | NAME),
        content_offset=None if is_data else draw(st.none() | COUNT),
        content_size_in_bytes=None if is_data else draw(st.none() | COUNT),
    )


@st.composite
def data_written(draw: st.DrawFn, *, is_java: bool) -> DataWritten:
    """Data and delete files of one partition type."""
    types = draw(partition_types(is_java=is_java))
    data = content_files((FileContent.DATA,), types)
    deletes = content_files((FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES), types)
    return DataWritten(
        draw(st.uuids()),
        draw(TABLES),
        draw(st.none() | st.lists(data, max_size=3).map(tuple)),
        draw(st.none() | st.lists(deletes, max_size=3).map(tuple)),
    )


TABLES = st.builds(
    TableReference, NAME, st.lists(NAME, max_size=3).map(tuple), NAME, st.none() | st.uuids()
)
ASSIGNMENTS = st.builds(
    TopicPartitionOffset,
    NAME,
    st.integers(0, 2**31 - 1),
    st.none() | LONG,
    st.none() | TIMESTAMP_US,
)


def as_read(event: Event) -> Event:
    """The event as a reader sees it: partition fields have their rewritten names."""

    def renamed(files: tuple[ContentFile, ...] | None) -> tuple[ContentFile, ...] | None:
        return files and tuple(
            replace(
                file,
                partition=tuple(replace(f, name=avro_name(f.name)) for f in file.partition),
            )
            for file in files
        )

    payload = event.payload
    if not isinstance(payload, DataWritten):
        return event
    return replace(
        event,
        payload=replace(
            payload,
            data_files=renamed(payload.data_files),
            delete_files=renamed(payload.delete_files),
        ),
    )


def events(*, is_java: bool = False) -> st.SearchStrategy[Event]:
    """Events of every kind.

    Args:
        is_java: leave out what Java's classes read and cannot show (``fixed`` partitions).
    """
    payloads = st.one_of(
        st.builds(StartCommit, st.uuids()),
        data_written(is_java=is_java),
        st.builds(
            DataComplete, st.uuids(), st.none() | st.lists(ASSIGNMENTS, max_size=4).map(tuple)
        ),
        st.builds(CommitToTable, st.uuids(), TABLES, st.none() | LONG, st.none() | TIMESTAMP_US),
        st.builds(CommitComplete, st.uuids(), st.none() | TIMESTAMP_US),
    )
    return st.builds(Event, st.uuids(), TIMESTAMP_US, TEXT, payloads)

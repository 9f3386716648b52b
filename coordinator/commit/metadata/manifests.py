"""Manifests: written for new files, merged when there are many.

Rules of this file:
- A manifest holds one content (data or deletes) and one partition spec.
- An added entry leaves its snapshot and its sequence number out, so that it inherits both from the
  manifest list. In row-level commits the batch decides the number, which is never above the
  snapshot's. A merged manifest names both.
- ``written`` names every file that this module writes; the caller decides about their deletion.

Source:
    Iceberg 1.12.0 ``ManifestMergeManager``, ``RollingManifestWriter``; PyIceberg 0.12.0
    ``pyiceberg.manifest``, whose writers this file corrects.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self, TypeAlias, cast, get_args

from pydantic_core import to_json
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import TableVersion

from connect.gateways.catalog.table_properties import is_true, location_provider, size
from connect.gateways.storage.avro_limits import ReadBudget
from coordinator.commit.metadata.avro_files import (
    AvroForm,
    PreparedAvroFile,
    Same,
    WrittenFile,
    entry_form,
)
from coordinator.commit.metadata.content_files import source_schema
from coordinator.commit.metadata.pending_files import PendingFiles
from coordinator.commit.metadata.row_lineage import copy_of, live_entries, writer_version

_ENTRIES_PER_BLOCK = 1000
_ENTRIES_PER_MANIFEST_MAX = 10_000
_READ_THREADS = 8
_SHAPES_MAX = 1_024
_SHAPES_BYTES_MAX = 16 * 2**20
"""Of the JSON of their schemas: owners of tables decide how large it is."""
_UNASSIGNED = -1
_Shape: TypeAlias = tuple[AvroForm, dict[str, str]]


class _Blocks:
    """Puts many entries into one Avro block; PyIceberg writes a block per entry."""

    def __init__(self, inner: PreparedAvroFile[ManifestEntry]) -> None:
        self._inner = inner
        self._pending: list[ManifestEntry] = []

    @property
    def output_file(self) -> WrittenFile:
        """The file, once it is written."""
        return WrittenFile(self._inner.output_file.location, self._inner.tell())

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._flush()
        self._inner.__exit__(kind, error, traceback)

    def write_block(self, entries: list[ManifestEntry]) -> None:
        self._pending.extend(entries)
        if len(self._pending) >= _ENTRIES_PER_BLOCK:
            self._flush()

    def tell(self) -> int:
        return self._inner.tell()

    def _flush(self) -> None:
        if self._pending:
            self._inner.write_block(self._pending)
            self._pending = []


class BlockManifestWriter(ManifestWriterV2):
    """A data manifest as Java reads it, with large blocks.

    PyIceberg 0.12.0 cannot write manifests of format version 3. They differ in optional fields.
    """

    format_version: TableVersion = 2

    @property
    def version(self) -> TableVersion:
        """The format version of the manifest."""
        return self.format_version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """The Avro writer."""
        form, _ = SHAPES.of(self._spec, self._schema, self.version)
        file = PreparedAvroFile[ManifestEntry](self._output_file, form, self._meta)
        return cast(AvroOutputFile[ManifestEntry], _Blocks(file))

    @property
    def _meta(self) -> dict[str, str]:
        _, texts = SHAPES.of(self._spec, self._schema, self.version)
        return {**texts, AVRO_CODEC_KEY: self._compression}


class DeleteManifestWriter(BlockManifestWriter):
    """A delete manifest, which PyIceberg 0.12.0 cannot write."""

    def content(self) -> ManifestContent:
        """Delete files only."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to add. ``sequence_number`` None inherits the snapshot's."""

    data_file: DataFile
    sequence_number: int | None = None


@dataclass(slots=True)
class ManifestSet:
    """The manifests of a snapshot that is being prepared.

    Attributes:
        table: the table they belong to.
        snapshot_id: of the snapshot that adds them.
        new_path: a fresh path for a manifest.
        files: get the manifests, and write them later.
        written: the path of every manifest, in order.
    """

    table: Table
    snapshot_id: int
    new_path: Callable[[], str]
    files: PendingFiles
    written: list[str] = field(default_factory=list)

    def add(self, content: ManifestContent, files: Iterable[NewFile]) -> list[ManifestFile]:
        """Write manifests for new files, grouped by partition spec and bounded in size.

        Entries name no snapshot: they inherit the snapshot that adds the manifest.
        """
        by_spec: dict[int, list[NewFile]] = defaultdict(list)
        for new in files:
            by_spec[new.data_file.spec_id].append(new)
        out = []
        for spec_id, group in by_spec.items():
            for start in range(0, len(group), _ENTRIES_PER_MANIFEST_MAX):
                with self._writer(spec_id, content) as writer:
                    for new in group[start : start + _ENTRIES_PER_MANIFEST_MAX]:
                        writer.add_entry(_added(new, None))
                out.append(writer.to_manifest_file())
        return out

    def merge(
        self,
        content: ManifestContent,
        new: Sequence[ManifestFile],
        existing: Sequence[ManifestFile],
    ) -> list[ManifestFile]:
        """Merge manifests of one content when there are many, by Java's rule.

        Per spec, bins of up to the target size are packed from the oldest; the bin that holds
        the newest manifest is merged only when it has at least the minimum count. A spec whose
        source column was dropped is not merged: its partition types are no longer known.

        Returns:
            What the snapshot's list holds, newest first.
        """
        policy = MergePolicy.of(self.table.properties)
        everything = [*new, *existing]
        if not policy.is_enabled or len(everything) < 2:
            return everything
        newest = everything[0].manifest_path
        by_spec: dict[int, list[ManifestFile]] = defaultdict(list)
        for manifest in everything:
            by_spec[manifest.partition_spec_id].append(manifest)
        out = []
        for spec_id, group in by_spec.items():
            if not self.is_mergeable(spec_id):
                out.extend(group)
                continue
            for packed in _packed_from_the_end(group, policy.target_size_bytes):
                is_young = any(m.manifest_path == newest for m in packed)
                if len(packed) == 1 or (is_young and len(packed) < policy.min_count):
                    out.extend(packed)
                else:
                    out.append(self._merged(spec_id, content, packed))
        return out

    def rewritten(
        self, manifest: ManifestFile, entries: Sequence[ManifestEntry], removed: Collection[int]
    ) -> ManifestFile:
        """Write a manifest again, with some of its files as deleted by this snapshot.

        Args:
            manifest: of an earlier snapshot.
            entries: its live entries.
            removed: places of the entries of the files.
        """
        with self._writer(manifest.partition_spec_id, manifest.content) as writer:
            for place, entry in enumerate(entries):
                (writer.delete if place in removed else writer.existing)(entry)
        return writer.to_manifest_file()

    def _merged(
        self, spec_id: int, content: ManifestContent, manifests: Sequence[ManifestFile]
    ) -> ManifestFile:
        self.files.flush()  # new manifests are among those that are read
        io, version = self.table.io, writer_version(self.table.metadata)
        budget = ReadBudget()

        def read(manifest: ManifestFile) -> list[ManifestEntry]:
            with budget.applied():
                return live_entries(manifest, io, version)

        with ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="manifest-read") as readers:
            entries = readers.map(read, manifests)
            with self._writer(spec_id, content) as writer:
                for manifest, group in zip(manifests, entries, strict=True):
                    is_new = manifest.added_snapshot_id == self.snapshot_id
                    for entry in group:
                        if is_new and entry.status == ManifestEntryStatus.ADDED:
                            number = entry.sequence_number
                            writer.add_entry(
                                _added(
                                    NewFile(
                                        entry.data_file, None if number == _UNASSIGNED else number
                                    ),
                                    self.snapshot_id,
                                )
                            )
                        else:
                            writer.existing(entry)
        return writer.to_manifest_file()

    def is_mergeable(self, spec_id: int) -> bool:
        """Whether manifests of a partition spec can be written: its columns are known."""
        spec = self.table.specs().get(spec_id)
        return spec is not None and all(
            self.table.schema().find_column_name(f.source_id) is not None for f in spec.fields
        )

    def _writer(self, spec_id: int, content: ManifestContent) -> ManifestWriter:
        cls = DeleteManifestWriter if content is ManifestContent.DELETES else BlockManifestWriter
        path = self.new_path()
        self.written.append(path)
        spec = self.table.specs()[spec_id]
        writer = cls(
            spec,
            source_schema(spec, self.table.schema(), self.table.metadata.schemas),
            self.files.new_output(path),
            self.snapshot_id,
            avro_codec(self.table.properties),
        )
        writer.format_version = writer_version(self.table.metadata)
        return writer


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When manifests are merged; table properties ``commit.manifest*`` with Java's defaults."""

    is_enabled: bool = True
    min_count: int = 100
    target_size_bytes: int = 8 * 1024 * 1024

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MergePolicy:
        """The table's policy; a value that is no number counts as absent."""
        return cls(
            is_true(properties, "commit.manifest-merge.enabled", default=True),
            size(properties, "commit.manifest.min-count-to-merge", cls().min_count),
            size(properties, "commit.manifest.target-size-bytes", cls().target_size_bytes),
        )


def avro_codec(properties: Mapping[str, str]) -> AvroCompressionCodec:
    """``write.avro.compression-codec`` by Avro's name; gzip if it is not available."""
    named = properties.get("write.avro.compression-codec", "gzip").lower()
    codec = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}.get(named, named)
    is_known = codec in get_args(AvroCompressionCodec)
    if codec == "snappy":  # PyIceberg needs a library for it that not everyone installs
        is_known = find_spec("cramjam") is not None
    return cast(AvroCompressionCodec, codec if is_known else "deflate")


class ManifestShapes:
    """Avro forms and texts of manifests, by spec, schema and format version; thread-safe.

    Args:
        bytes_max: limit of ``kept_bytes``.

    Attributes:
        kept_bytes: JSON of the schemas of those that are kept.
    """

    def __init__(self, bytes_max: int = _SHAPES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[Same[Any], Same[Any], TableVersion], _Shape] = OrderedDict()
        self._lock = threading.Lock()
        self.kept_bytes = 0

    def of(self, spec: PartitionSpec, schema: Schema, version: TableVersion) -> _Shape:
        """Return the form and the texts of manifests of one spec, schema and format version."""
        key = Same(spec), Same(schema), version
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        made = _shape(spec, schema, version)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self.kept_bytes += _size(made)
            while len(self._kept) > _SHAPES_MAX or self.kept_bytes > self._bytes_max:
                _, oldest = self._kept.popitem(last=False)
                self.kept_bytes -= _size(oldest)
        return made


SHAPES = ManifestShapes()


def _size(shape: _Shape) -> int:
    return sum(map(len, shape[1].values()))


def _shape(spec: PartitionSpec, schema: Schema, version: TableVersion) -> _Shape:
    texts = {
        "schema": schema.model_dump_json(),
        "partition-spec": to_json(spec.fields).decode(),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(version),
    }
    return entry_form(spec.partition_type(schema), version), texts


def with_sequence_number(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    """The manifest as readers of the new list see it: unassigned numbers filled in.

    One that has all its numbers is returned itself, so that it is known to be the same.
    """
    if _UNASSIGNED not in {manifest.sequence_number, manifest.min_sequence_number}:
        return manifest
    out = copy_of(manifest)
    if out.sequence_number == _UNASSIGNED:
        out.sequence_number = sequence_number
    if out.min_sequence_number == _UNASSIGNED:
        out.min_sequence_number = sequence_number
    return out


def last_sequence_number(table: Table) -> int:
    """The table's last sequence number; it counts commits of every branch."""
    return int(getattr(table.metadata, "last_sequence_number", 0))


def manifest_set(
    table: Table, snapshot_id: int, prefix: str, files: PendingFiles, written: list[str]
) -> ManifestSet:
    """A set whose manifests lie where the table keeps its metadata.

    Args:
        table: the table.
        snapshot_id: of the snapshot that adds them.
        prefix: of their names.
        files: get the manifests, and write them later.
        written: gets the path of each.
    """
    places = location_provider(table.location(), table.properties)

    def new_path() -> str:
        return places.new_metadata_location(f"{prefix}{len(written)}.avro")

    return ManifestSet(table, snapshot_id, new_path, files, written)


def _added(new: NewFile, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=new.sequence_number,
        file_sequence_number=None,
        data_file=new.data_file,
    )


def _packed_from_the_end(
    manifests: Sequence[ManifestFile], target_size_bytes: int
) -> list[list[ManifestFile]]:
    """Bins in the order given; filled from the end, so that only the first one is not full."""
    bins: list[list[ManifestFile]] = [[]]
    size_bytes = 0
    for manifest in reversed(manifests):
        if bins[-1] and size_bytes + manifest.manifest_length > target_size_bytes:
            bins.append([])
            size_bytes = 0
        bins[-1].append(manifest)
        size_bytes += manifest.manifest_length
    return [list(reversed(packed)) for packed in reversed(bins)]

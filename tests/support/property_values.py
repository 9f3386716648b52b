"""Table properties that the product reads, with unusual and invalid values."""

from __future__ import annotations

from hypothesis import strategies as st

TUNING = (
    "write.object-storage.enabled",
    "write.object-storage.partitioned-paths",
    "write.target-file-size-bytes",
    "write.parquet.row-group-size-bytes",
    "write.parquet.page-size-bytes",
    "write.parquet.dict-size-bytes",
    "write.parquet.compression-codec",
    "write.parquet.compression-level",
    "write.avro.compression-codec",
    "write.metadata.compression-codec",
    "write.metadata.metrics.default",
    "write.metadata.metrics.column.id",
    "write.metadata.metrics.max-inferred-column-defaults",
    "write.metadata.delete-after-commit.enabled",
    "write.metadata.previous-versions-max",
    "write.format.default",
    "commit.manifest-merge.enabled",
    "commit.manifest.min-count-to-merge",
    "commit.manifest.target-size-bytes",
    "commit.retry.num-retries",
    "history.expire.max-snapshot-age-ms",
)
"""Properties that tune files; an invalid value has no effect."""

DECIDING = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "schema.name-mapping.default",
)
"""Properties for locations and field ids; a value may make the table unusable."""

NASTY = (
    "",
    " ",
    "maybe",
    "true",
    "TRUE",
    "false",
    "yes",
    "null",
    "none",
    "0",
    "-1",
    "1",
    "3",
    "1e9",
    "1.5",
    "0x10",
    "1_000",
    "٣",
    "²",
    "9" * 19,
    "9" * 5_000,
    "-" + "9" * 30,
    "zstd",
    "lzma",
    "snappy",
    "bzip2",
    "gzip",
    "lz4",
    "counts",
    "full",
    "truncate(0)",
    "truncate(16)",
    "truncate(99999999999)",
    "truncate",
    "{}",
    "[]",
    '{"0": 1}',
    '{"0": -1}',
    '{"0": 1e400}',
    "[{",
    "2026-01-02T03:04:05Z",
    "0001-01-01T00:00:00+14:00",
    "\x00",
)

VALUES = st.sampled_from(NASTY) | st.text(max_size=12) | st.integers().map(str)

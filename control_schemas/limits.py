"""Limits of untrusted control records.

Rules of this file:
- All limits of frames and headers are in this module.
- The writer has the same limits, so that every written event can be read.
- The limits are generous: Kafka's default ``max.request.size`` is 1 MiB.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of a record value: sixteen times Kafka's default ``max.request.size``."""

SCHEMA_BYTES_MAX: Final = 65_535
"""Size of the schema text; its length is an unsigned 16-bit number on the wire."""

JSON_DEPTH_MAX: Final = 64
"""Nesting of brackets in JSON (schema, headers); the deepest schema of Java has 19."""

SCHEMA_DEPTH_MAX: Final = 24
"""Nesting of types after expansion of named types; the deepest schema of Java has 8."""

SCHEMA_WEIGHT_MAX: Final = 4096
"""Number of types in a schema after expansion of named types."""

PARTITION_FIELDS_MAX: Final = 512
"""Number of fields of a partition tuple."""

VALUES_MAX: Final = 6_000_000
"""Number of values in a datum, with records, list items and map entries; bounds the memory."""

STRING_BYTES_MAX: Final = 1024 * 1024
"""Size of a string or byte string: a path, a bound, key metadata."""

HEADER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of a record header; ``icefloe.ranges`` has about 60 bytes per partition."""

SCHEMA_CACHE_ENTRIES: Final = 128
"""Number of cached schemas per direction: one per payload and partition type in use."""

"""How much of an untrusted message is believed.

Rules of this file:
- Everything that a frame or a header can ask for has its limit in this module only.
- The writer keeps the same limits, so that nothing is ever written that cannot be read.
- The figures leave room: Kafka's default ``max.request.size`` is 1 MiB.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""A whole record value. Sixteen times Kafka's default largest request."""

SCHEMA_BYTES_MAX: Final = 65_535
"""The schema text; its length is an unsigned 16-bit number on the wire."""

JSON_DEPTH_MAX: Final = 64
"""Nesting of brackets in a JSON text (schema, headers); Java's deepest schema has 19."""

SCHEMA_DEPTH_MAX: Final = 24
"""Nesting of types once names are resolved; Java's deepest schema has 8."""

SCHEMA_WEIGHT_MAX: Final = 4096
"""Types in a schema, once names are resolved."""

PARTITION_FIELDS_MAX: Final = 512
"""Fields of a partition tuple."""

VALUES_MAX: Final = 6_000_000
"""Values in a datum, records, list items and map entries included: what bounds memory."""

STRING_BYTES_MAX: Final = 1024 * 1024
"""One string or byte string: a path, a bound, key metadata."""

HEADER_BYTES_MAX: Final = 4 * 1024 * 1024
"""One record header; ``icefloe.ranges`` takes about 60 bytes a partition."""

SCHEMA_CACHE_ENTRIES: Final = 128
"""Schemas kept parsed, per direction; one per payload and partition type in use."""

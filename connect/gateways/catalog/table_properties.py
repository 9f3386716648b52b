"""Table properties that decide how files are written, read so that none of them stops a table.

Rules of this file:
- Any client that may change a table sets its properties. A value that cannot be used has no effect.
- Booleans and metrics modes are read as Iceberg's Java library reads them: what is not ``true``
  is false, an unknown metrics mode is the default. Java refuses to write where a number or a
  codec is unusable; such a value only tunes a file, so this module uses the default.
- No property names a class that is loaded.

Source:
    Iceberg 1.12.0 ``PropertyUtil``, ``MetricsConfig.parseMode``; docs/decisions/0021.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyiceberg.table.locations import LocationProvider, load_location_provider

OBJECT_STORAGE: Final = "write.object-storage.enabled"
PARTITIONED_PATHS: Final = "write.object-storage.partitioned-paths"
TARGET_BYTES: Final = "write.target-file-size-bytes"
GROUP_BYTES: Final = "write.parquet.row-group-size-bytes"
PAGE_BYTES: Final = "write.parquet.page-size-bytes"
DICTIONARY_BYTES: Final = "write.parquet.dict-size-bytes"
CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
VERSIONS_MAX: Final = "write.metadata.previous-versions-max"

_PROVIDER_CLASS: Final = "write.py-location-provider.impl"
_METRICS_DEFAULT: Final = "write.metadata.metrics.default"
_METRICS_COLUMN: Final = "write.metadata.metrics.column."
_BOOLEANS: Final = (OBJECT_STORAGE, PARTITIONED_PATHS)
_SIZES: Final = (TARGET_BYTES, GROUP_BYTES, PAGE_BYTES, DICTIONARY_BYTES, VERSIONS_MAX)
_CODECS: Final = {"uncompressed": "none", "none": "none"} | {
    c: c for c in ("zstd", "gzip", "snappy", "lz4", "brotli")
}
_WITH_LEVEL: Final = frozenset({"zstd", "gzip", "brotli"})
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MODE: Final = re.compile(r"none|counts|full|truncate\(([0-9]{1,10})\)", re.IGNORECASE | re.ASCII)
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def is_true(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    """A boolean as Java's ``Boolean.parseBoolean`` reads it."""
    text = properties.get(key)
    return default if text is None else text.lower() == "true"


def size(properties: Mapping[str, str], key: str, default: int) -> int:
    """A positive number; the default where the text is none that fits 64 bits."""
    number = _number(properties.get(key))
    return default if number is None or not 0 < number <= _LONG_MAX else number


def codec(properties: Mapping[str, str]) -> str:
    """Return the Parquet codec by Arrow's name; zstd if it is not known."""
    return _CODECS.get(properties.get(CODEC, "").lower(), "zstd")


def level(properties: Mapping[str, str]) -> int | None:
    """The compression level; None where the codec has none, or not this one."""
    name, number = codec(properties), _number(properties.get(LEVEL))
    if name not in _WITH_LEVEL or number is None:
        return None
    least, most = (
        pa.Codec.minimum_compression_level(name),
        pa.Codec.maximum_compression_level(name),
    )
    return number if least <= number <= most else None


def metrics(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of metrics modes that can be followed."""
    return {
        key: text
        for key, text in properties.items()
        if (key == _METRICS_DEFAULT or key.startswith(_METRICS_COLUMN)) and _is_mode(text)
    }


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Where the files of a table go.

    Args:
        location: the table's.
        properties: the table's.
    """
    table_properties = {key: text for key, text in properties.items() if key != _PROVIDER_CLASS}
    for key in _BOOLEANS:
        if key in table_properties:
            table_properties[key] = str(is_true(table_properties, key, default=False)).lower()
    return load_location_provider(location, table_properties)


def ignored(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties whose values are not used, for a warning."""
    out = {
        key: properties[key]
        for key in _BOOLEANS
        if properties.get(key, "true").lower() not in {"true", "false"}
    }
    out |= {k: properties[k] for k in _SIZES if k in properties and not size(properties, k, 0)}
    if properties.get(CODEC, "zstd").lower() not in _CODECS:
        out[CODEC] = properties[CODEC]
    if codec(properties) in _WITH_LEVEL and properties.get(LEVEL, "null") != "null":
        out |= {LEVEL: properties[LEVEL]} if level(properties) is None else {}
    out |= {
        key: text
        for key, text in properties.items()
        if (key == _METRICS_DEFAULT or key.startswith(_METRICS_COLUMN)) and not _is_mode(text)
    }
    return out


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _DIGITS.fullmatch(text) else None


def _is_mode(text: str) -> bool:
    match = _MODE.fullmatch(text.strip())
    return match is not None and (match[1] is None or 0 < int(match[1]) <= _INT_MAX)

"""Manifests whose owner wrote them to harm the process that reads them.

As a program: reads the files that its input names as manifests, and reports how that ends.
"""

from __future__ import annotations

import bz2
import json
import os
import resource
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import zstandard
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

SYNC: Final = b"0123456789abcdef"
SCHEMA: Final = MANIFEST_ENTRY_SCHEMAS[2]
FILE_PATH: Final = b"s3://lake/db/t/data/a.parquet"
COMPRESSED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data, 9)[2:-4],
    "bzip2": bz2.compress,
    "zstandard": zstandard.ZstdCompressor(19).compress,
}
BYTES_MAX: Final = 2**25
MEMORY_BYTES: Final = 4 * 2**30
SECONDS: Final = 60


def long(number: int) -> bytes:
    """Encode a number."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    return bytes([*out, left])


def sized(content: bytes) -> bytes:
    """Encode bytes after their number."""
    return long(len(content)) + content


def schema_text(schema: Schema = SCHEMA, name: str = "manifest_entry") -> dict[str, Any]:
    """Return the Avro schema of manifests, as JSON."""
    text = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
    assert isinstance(text, dict)
    return text


def record(schema: Schema | StructType = SCHEMA, **values: bytes) -> bytes:
    """Encode a record: fields by name as they are encoded, the others as short as possible."""
    out = b""
    for field in schema.fields:
        if field.name in values:
            out += values[field.name]
        elif isinstance(field.field_type, StructType):
            out += record(field.field_type, **values)
        elif field.name == "file_path":
            out += sized(FILE_PATH)
        elif field.name == "file_format":
            out += sized(b"PARQUET")
        else:
            out += long(0)
    return out


def block(records: int, data: bytes, codec: str = "null") -> bytes:
    """Return a block."""
    return long(records) + sized(COMPRESSED[codec](data)) + SYNC


def avro_file(
    *blocks: bytes, codec: str = "null", schema: dict[str, Any] | str | None = None
) -> bytes:
    """Return an Avro file."""
    text = schema if isinstance(schema, str) else json.dumps(schema or schema_text())
    meta = {b"avro.schema": text.encode(), b"avro.codec": codec.encode()}
    head = b"".join(sized(key) + sized(value) for key, value in meta.items())
    return b"Obj\1" + long(len(meta)) + head + long(0) + SYNC + b"".join(blocks)


def with_field(field_type: Any) -> dict[str, Any]:
    """Return a schema of manifests with one more field, which readers skip."""
    schema = schema_text()
    return {
        **schema,
        "fields": [*schema["fields"], {"name": "x", "type": field_type, "field-id": 999}],
    }


def some(value: bytes) -> bytes:
    """Encode a value that is not null."""
    return long(1) + value


NULLS: Final = {"type": "array", "items": "null", "element-id": 1000}
LONGS: Final = {"type": "array", "items": "long", "element-id": 1000}
HUGE: Final = 2**40


def _deep(depth: int) -> str:
    mark = "<deep>"
    start, end = '{"type": "array", "element-id": 1000, "items": ', "}"
    text = json.dumps(with_field(mark))
    return text.replace(json.dumps(mark), start * depth + '"long"' + end * depth)


def _key_last() -> dict[str, Any]:
    schema = schema_text()
    (data_file,) = (f for f in schema["fields"] if f["name"] == "data_file")
    data_file["type"]["fields"].sort(key=lambda field: field["name"] == "key_metadata")
    return schema


def key_at_end(size: int) -> bytes:
    """Return a file whose last field claims to have so many bytes."""
    data = record()[:-4] + long(0) * 3 + some(long(size))
    return avro_file(block(1, data), schema=_key_last())


INVALID: Final[Mapping[str, Callable[[], bytes]]] = {
    "text behind the end": lambda: avro_file(block(1, record(file_path=long(4_000) + b"x"))),
    "key behind the end": lambda: avro_file(block(1, record(key_metadata=some(long(2**20))))),
    "last key behind the end": lambda: key_at_end(2**16),
    "last key far behind the end": lambda: key_at_end(2**30),
    "length of 64 bits": lambda: avro_file(block(1, record(file_path=long(-(2**63))))),
    "bounds behind the end": lambda: avro_file(
        block(1, record(lower_bounds=some(long(1) + long(7) + long(2**20))))
    ),
    "many bounds": lambda: avro_file(block(1, record(lower_bounds=some(long(HUGE))))),
    "many counts": lambda: avro_file(block(1, record(value_counts=some(long(HUGE))))),
    "many offsets": lambda: avro_file(block(1, record(split_offsets=some(long(HUGE))))),
    "many records": lambda: avro_file(block(HUGE, record())),
    "no record of many": lambda: avro_file(block(HUGE, b"")),
    "record cut off": lambda: avro_file(block(1, record()[:-3])),
    "file cut off": lambda: avro_file(block(2, record() * 2))[:-20],
    "elements without bytes": lambda: avro_file(
        block(1, record() + long(HUGE) + long(0)), schema=with_field(NULLS)
    ),
    "skipped backwards": lambda: avro_file(
        block(1, record() + long(-1) + long(-3) + long(0)), schema=with_field(LONGS)
    ),
    "skipped far": lambda: avro_file(
        block(1, record() + long(-1) + long(HUGE) + long(0)), schema=with_field(LONGS)
    ),
    "skipped text": lambda: avro_file(
        block(1, record() + long(2**62)), schema=with_field("string")
    ),
    "fixed below zero": lambda: avro_file(
        block(1, record()), schema=with_field({"type": "fixed", "name": "f", "size": -8})
    ),
    "deep schema": lambda: avro_file(block(1, record()), schema=_deep(4_000)),
    "not compressed": lambda: avro_file(block(1, record()), codec="zstandard"),
    "no Avro": lambda: b"PAR1" + bytes(100),
    "empty": lambda: b"",
}
"""Files that are wrong, by what is wrong."""


def bomb(codec: str, size: int = 2**27) -> bytes:
    """Return a file with a text that compression makes short."""
    data = record(key_metadata=some(sized(bytes(size))))
    return avro_file(block(1, data, codec), codec=codec)


def many(codec: str, records: int, blocks: int) -> bytes:
    """Return a file with very many short records."""
    one = record(file_path=sized(b""))
    return avro_file(*[block(records, one * records, codec)] * blocks, codec=codec)


def pairs(count: int) -> bytes:
    """Return a file with records whose bounds are empty, of ever other columns."""
    content = b"".join(long(each) + long(0) for each in range(count))
    data = record(lower_bounds=some(long(count) + content + long(0)))
    return avro_file(*[block(20, data * 20, "deflate")] * 4, codec="deflate")


LARGE: Final[Mapping[str, Callable[[], bytes]]] = {
    "deflate": lambda: bomb("deflate"),
    "bzip2": lambda: bomb("bzip2"),
    "zstandard": lambda: bomb("zstandard"),
    "records": lambda: many("deflate", 50_000, 20),
    "bounds": lambda: pairs(100_000),
    "schema": lambda: avro_file(block(1, record()), schema={**schema_text(), "doc": "x" * 2**19}),
}
"""Files whose content takes too much memory, by what is large."""


def manifest_at(path: str) -> ManifestFile:
    """Return what a manifest list says of a manifest."""
    return ManifestFile.from_args(
        _table_format_version=2,
        manifest_path=path,
        manifest_length=1,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=1,
    )


def main() -> None:
    """Read manifests as a coordinator does, with little memory and time; a path in each line.

    Each is read in a fork, because the imports take longer than most manifests.
    """
    import connect.gateways.catalog.catalog  # noqa: F401 - reads checked manifests
    from connect.gateways.access_policy import AccessPolicy, install

    install(AccessPolicy(answer_bytes_max=BYTES_MAX))
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            sys.stdout.write(json.dumps(_read(line.strip())) + "\n")
            sys.stdout.flush()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps(status) + "\n")
        sys.stdout.flush()


def _read(path: str) -> tuple[str, int]:
    from connect.errors import IcefloeError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = "read"
    try:
        manifest_at(path).fetch_manifest_entry(PyArrowFileIO())
    except IcefloeError as error:
        outcome = error.code
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return outcome, used // 1024


def written(folder: Path, content: bytes) -> Path:
    """Write a file."""
    path = folder / "m.avro"
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    main()

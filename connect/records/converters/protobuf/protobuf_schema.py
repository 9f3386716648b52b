"""Descriptors of Protobuf schemas from a registry, given as text or serialized, with imports.

Rules of this file:
- Each schema has a separate descriptor pool. Schemas of topics never enter the default pool.
- protoc compiles text in a child process with limits of time and memory. Registries that support
  ``format=serialized`` avoid this step.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import grpc_tools
from google.protobuf import (  # the import registers the files
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from connect.errors import RetriableError
from control_schemas.avro import BadSchema

SCHEMA_BYTES_MAX: Final = 4 * 2**20
MAIN: Final = "icefloe.main.proto"
_PROTOC_TIMEOUT_S: Final = 60
# a schema could make protoc use all resources, so its process has limits of memory and time
_PROTOC: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({2**30}, {2**30}))
resource.setrlimit(resource.RLIMIT_CPU, ({_PROTOC_TIMEOUT_S}, {_PROTOC_TIMEOUT_S}))
resource.setrlimit(resource.RLIMIT_FSIZE, ({2**28}, {2**28}))
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[1:]]))
"""
_KNOWN: Final = tuple(
    module.DESCRIPTOR.name
    for module in (
        *(any_pb2, source_context_pb2, type_pb2, api_pb2, descriptor_pb2, duration_pb2),
        *(empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2),
    )
)
# Files that Confluent's serializers import without registering them; without comments and options.
_BUILT_IN: Final[Mapping[str, str]] = {
    "google/type/date.proto": """
        syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }""",
    "google/type/timeofday.proto": """
        syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3;
          int32 nanos = 4; }""",
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
}


def pool_of(text: str, references: Mapping[str, str]) -> tuple[Any, Any]:
    """Build the descriptors of a schema.

    Args:
        text: a ``.proto`` file, or the base64 of a file descriptor.
        references: imported files in the same formats, by import name.

    Returns:
        The pool and the file descriptor.

    Raises:
        BadSchema: the schema is invalid.
        RetriableError: protoc did not finish in time.
    """
    if len(text) + sum(map(len, references.values())) > SCHEMA_BYTES_MAX:
        raise BadSchema(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
    sources = {**references, MAIN: text}
    files: dict[str, Any] = {}
    for name, source in sources.items():
        file = _serialized(source)
        if file is None:
            files = {f.name: f for f in _compiled(sources).file}
            break
        file.name = name
        files[name] = file
    return _pool(files)


def _pool(files: dict[str, Any]) -> tuple[Any, Any]:
    pool = descriptor_pool.DescriptorPool()
    for name in _KNOWN:
        pool.AddSerializedFile(_known_file(name))
    added = set(_KNOWN)

    def add(name: str, open_names: tuple[str, ...]) -> None:
        if name in added:
            return
        file = files.get(name) or _built_in(name)
        if file is None:
            raise BadSchema(f"the schema imports {name[:200]!r}, which is not among its references")
        if name in open_names or len(open_names) > 64:
            raise BadSchema("the imports of the schema are circular")
        for inner in file.dependency:
            add(inner, (*open_names, name))
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise BadSchema(f"the schema cannot be used: {str(error)[:300]}") from None
        added.add(name)

    add(MAIN, ())
    return pool, pool.FindFileByName(MAIN)


def _known_file(name: str) -> bytes:
    """Return the serialized descriptor of a file that is part of Protobuf."""
    serialized: bytes = descriptor_pool.Default().FindFileByName(name).serialized_pb
    return serialized


@lru_cache(maxsize=8)
def _built_in(name: str) -> Any:
    """Return the descriptor of a file that Confluent's serializers include, or None."""
    if name not in _BUILT_IN:
        return None
    compiled = _compiled({MAIN: _BUILT_IN[name]}, to_name=name)
    return next(f for f in compiled.file if f.name == name)


def _serialized(source: str) -> Any:
    """Parse a serialized file descriptor; return None if the text is a ``.proto`` file."""
    try:
        data = base64.b64decode(source, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None


def _compiled(sources: Mapping[str, str], to_name: str = MAIN) -> Any:
    """Run protoc and return the descriptors of the file and its imports.

    Serialized sources are passed to protoc unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="icefloe-proto-") as folder:
        root = Path(folder) / "in"
        out = Path(folder) / "out.bin"
        for name, text in {**_BUILT_IN, **sources}.items():
            target = to_name if name == MAIN else name
            path = PurePosixPath(target)
            if path.is_absolute() or ".." in path.parts or "\\" in target or "\0" in target:
                raise BadSchema(f"the schema has a reference with the reserved name {name[:200]!r}")
            if _serialized(text) is not None:
                raise BadSchema("the registry returned some files as text and some serialized")
            file = root / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8", "replace")
            except OSError as error:  # the name is too long, or is a folder of another file
                kind = type(error).__name__
                raise BadSchema(
                    f"the name of a reference is not a valid file name: {name[:200]!r} ({kind})"
                ) from None
        command = [
            *(sys.executable, "-c", _PROTOC, f"-I{root}", f"-I{_includes()}"),
            *("--include_imports", f"--descriptor_set_out={out}", to_name),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PROTOC_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise RetriableError("protoc did not finish in time", code="registry_protoc") from None
        if done.returncode or not out.exists():
            message = done.stderr.replace(str(root), "").strip()
            raise BadSchema(f"the schema is not valid Protobuf: {message[-300:]}")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def _includes() -> Path:
    return Path(grpc_tools.__file__).parent / "_proto"

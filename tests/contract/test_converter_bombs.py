"""No message kills the process: known bombs and random bytes, read in a child of bounded memory."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.records.converters.compressed import INFLATED_BYTES_MAX, inflate

# it is forked for each job: its imports take longer than most jobs
CHILD = """
import base64, json, os, random, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from connect.config.connector import ConverterConfig
from connect.records.converters import converter
from connect.errors import RecordError

from connect.records.converters.payload_errors import Malformed
from connect.records.converters.protobuf.protobuf_data import (
    ProtobufOptions, message_at, protobuf_reader
)
from connect.records.converters.protobuf.protobuf_schema import pool_of

def run(job):
    if "proto" in job["options"]:
        file = pool_of(job["options"]["proto"], {})[1]
        reads = protobuf_reader(message_at(file, (0,)), ProtobufOptions()).read
    else:
        reader = converter(ConverterConfig(job["class"], job["options"]), "value")
        reads = lambda data: reader.to_connect("t", (), data)
    def read(data):
        try:
            reads(data)
            return "read"
        except (RecordError, Malformed) as error:
            return error.code
    outcomes = [read(base64.b64decode(text)) for text in job["messages"]]
    chance = random.Random(7)
    for seed in job["messages"][-1:]:
        whole = base64.b64decode(seed)
        for _ in range(job["random"]):
            data = bytearray(whole[:4096])
            for _ in range(chance.randrange(1, 6)):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
            read(bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data))
    print(json.dumps(outcomes), flush=True)

for line in sys.stdin:
    pid = os.fork()
    if not pid:
        signal.alarm(int(sys.argv[2]))
        run(json.loads(line))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(status), flush=True)
"""
MEMORY_BYTES = 3 * 2**30
TIMEOUT_S = 120
MUTATED = 1_000  # of each job
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the longest zig-zag length there is
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "n", "type": {"type": "array", "items": "null"}},
        {"name": "m", "type": {"type": "map", "values": "bytes"}},
    ],
}


Report = Callable[..., list[str]]


@pytest.fixture(scope="module")
def reported() -> Iterator[Report]:
    """What a child with bounded memory and time says of messages; the last one is also mutated."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(MEMORY_BYTES), str(TIMEOUT_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:

        def report(class_name: str, options: dict[str, str], messages: list[bytes]) -> list[str]:
            encoded = [base64.b64encode(m).decode() for m in messages]
            job = {"class": class_name, "options": options, "messages": encoded, "random": MUTATED}
            assert child.stdin is not None
            assert child.stdout is not None
            print(json.dumps(job), file=child.stdin, flush=True)
            outcomes = json.loads(child.stdout.readline())
            assert isinstance(outcomes, list), f"it ended with status {outcomes}"
            assert json.loads(child.stdout.readline()) == 0
            return outcomes

        yield report


def test_oversized_avro_claims_are_refused(reported: Report, tmp_path: Path) -> None:
    """Lengths beyond the message and items without bytes, before memory is allocated."""
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(AVRO))
    good = b"\2a" + b"\4\0" + b"\2\2k\2\1\0"
    messages = [
        HUGE,
        b"\2a" + HUGE,
        b"\2a" + b"\xfe\xff\xff\xff\x0f" + b"\0" * 10,
        b"\2a\0" + HUGE,
        b"\2a\0\2" + HUGE,
        b"\2a\1" + HUGE,
        b"\xff" * 100,
        good,
    ]
    options = {"schema.file": str(file)}
    codes = reported("io.confluent.connect.avro.AvroConverter", options, messages)
    assert codes[-1] == "read"
    assert set(codes[:-1]) <= {"bad_avro", "too_large"}


def deep(levels: int) -> Any:
    schema: Any = "int"
    for i in range(levels):
        schema = {"type": "record", "name": f"R{i}", "fields": [{"name": "f", "type": schema}]}
    return schema


LAUGHS = [
    *({"type": "record", "name": "L0", "fields": [{"name": "f", "type": "int"}]},),
    *(
        {
            "type": "record",
            "name": f"L{i}",
            "fields": [{"name": f"f{j}", "type": f"L{i - 1}"} for j in range(10)],
        }
        for i in range(1, 12)
    ),
]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "R"]}]},
        deep(200),
        deep(20_000),
        {
            "type": "record",
            "name": "All",
            "fields": [{"name": f"l{i}", "type": kind} for i, kind in enumerate(LAUGHS)],
        },
        {"type": "fixed", "name": "F", "size": 2**40},
        {"type": "array"},
        {"type": {"type": {"kind": "int"}}},
    ],
    ids=["recursive", "deep", "very deep", "laughs", "fixed", "no items", "no type"],
)
def test_schemas_without_bound_are_refused(schema: Any) -> None:
    """Schemas that contain themselves, are deep or grow without bound, with a reason."""
    from connect.records.converters.avro.avro_schema import BadSchema, parse_avro

    sys.setrecursionlimit(100_000)
    try:
        text = json.dumps(schema)
    finally:
        sys.setrecursionlimit(1_000)
    with pytest.raises(BadSchema):
        parse_avro(text)


def test_deep_and_long_json_documents_are_refused_or_read(reported: Report, tmp_path: Path) -> None:
    """They do not end the process."""
    file = tmp_path / "s.json"
    file.write_text('{"type":"object","properties":{"a":{"type":"integer"}}}')
    messages = [
        b'{"a":' + b"[" * 1_000_000,
        b'{"b":' + b"[" * 900 + b"]" * 900 + b',"a":1}',
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'{"a":1e999999999}',
        b'{"a":1}',
    ]
    options = {"schema.file": str(file)}
    codes = reported("io.confluent.connect.json.JsonSchemaConverter", options, messages)
    assert codes[-1] == "read"
    assert codes[0] == "too_deep"
    assert "read" not in (codes[2], codes[3])


PROTO = """
syntax = "proto3";
message M {
  string s = 1; repeated Empty empties = 2; repeated bool flags = 3; map<string, Empty> named = 4;
  repeated M2 inner = 5; repeated string texts = 6;
}
message M2 { repeated Empty empties = 1; }
message Empty {}
"""


def test_oversized_protobuf_claims_are_refused(reported: Report) -> None:
    """Lengths beyond the message, endless groups, millions of empty items."""
    inner = b"\x0a\0" * 1_000_000
    size = b"\x80\x89\x7a"  # 2,000,000
    good = b"\x0a\x01a\x12\0\x1a\x02\x01\0\x22\x05\x0a\x01k\x12\0\x2a\x02\x0a\0\x32\x01x"
    messages = [
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a" + b"\xff" * 10,
        b"\x5b" * 200_000,  # unknown groups, nested
        b"\x5b" * 50 + b"\x5c" * 50 + b"\x5b" * 100_000,
        b"\x12\0" * 4_100_000,
        (b"\x2a" + size + inner) * 5,
        b"\x32\0" * 4_100_000,
        b"\x22\x04\x0a\0\x12\0" * 1_000_000,
        b"\xff" * 100,
        good,
    ]
    codes = reported("protobuf", {"proto": PROTO}, messages)
    assert codes[-1] == "read"
    assert codes[4:7] == ["too_large"] * 3
    assert "read" not in codes[:4]


def deep_proto(levels: int) -> str:
    start = "".join(f"message M{i} {{ " for i in range(levels))
    return 'syntax = "proto3"; ' + start + "int32 f = 1;" + " }" * levels


def laughing_proto() -> str:
    types = ["message L0 { int32 f = 1; }"]
    for i in range(1, 12):
        fields = " ".join(f"L{i - 1} f{j} = {j};" for j in range(1, 11))
        types.append(f"message L{i} {{ {fields} }}")
    return 'syntax = "proto3"; ' + " ".join(reversed(types))


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ('syntax = "proto3"; message R { R r = 1; int32 f = 2; }', {}),
        (deep_proto(20_000), {}),
        (laughing_proto(), {}),
        ('syntax = "proto3"; import "a"; message M { int32 f = 1; }', {"a": "", "a/b": ""}),
        ('syntax = "proto3"; message M { int32 f = 1; }', {"x" * 5_000: ""}),
        ('syntax = "proto3"; message M { int32 f = 1; }', {"../../m.proto": ""}),
    ],
    ids=["recursive", "very deep", "laughs", "a folder", "a long name", "outside"],
)
def test_protobuf_schemas_without_bound_are_refused(text: str, references: dict[str, str]) -> None:
    """Schemas that contain themselves, are deep or grow without bound, with a reason."""
    from connect.records.converters.avro.avro_schema import BadSchema
    from connect.records.converters.protobuf.protobuf_data import (
        ProtobufOptions,
        message_at,
        protobuf_reader,
    )
    from connect.records.converters.protobuf.protobuf_schema import pool_of

    with pytest.raises(BadSchema):
        protobuf_reader(message_at(pool_of(text, references)[1], (0,)), ProtobufOptions())


def test_oversized_gzip_data_is_refused(reported: Report) -> None:
    """While it is decompressed."""
    squeeze = zlib.compressobj(9, wbits=31)
    parts = [squeeze.compress(bytes(INFLATED_BYTES_MAX)) for _ in range(2)]
    bomb = b"".join(parts) + squeeze.flush()
    good = zlib.compress(b'{"a":1}', wbits=31)
    options = {"payload.compression": "gzip", "schemas.enable": "false"}
    codes = reported(
        "org.apache.kafka.connect.json.JsonConverter",
        options,
        [bomb, bomb[:1000], b"plain", b"", good + b"more", good],
    )
    assert codes == ["too_large", "bad_gzip", "bad_gzip", "bad_gzip", "bad_gzip", "read"]


def test_gzip_data_of_many_members_is_read_in_linear_time() -> None:
    """Each member could cost a copy of all that follow: 7 s for 4 MB, and 100 times that for 40."""
    member = zlib.compress(b"", wbits=31)
    good = zlib.compress(b'{"a":1}', wbits=31)
    start = time.process_time()
    assert inflate(member * 400_000 + good) == b'{"a":1}'
    assert time.process_time() - start < 5  # 28 s where time grows with the square
    assert inflate(member) == b""
    assert inflate(good * 3) == b'{"a":1}' * 3
    large = bytes(3 * 2**20)
    assert inflate(zlib.compress(large, wbits=31) + good) == large + b'{"a":1}'

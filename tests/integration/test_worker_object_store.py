"""Data files of the pipeline in an object store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.differential.support import config, plan, run_batches, source
from tests.support.stack import S3Server, unique_name

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.mark.matrix  # ``tests/contract/test_store_faults.py`` writes data files to S3
def test_files_go_to_the_object_store(s3_server: S3Server, tmp_path: Path) -> None:
    """Table io properties select the store; file sizes are correct; an error returns no files."""
    location = f"{s3_server.warehouse}/{unique_name('t')}"
    table = dataclasses.replace(
        plan(tmp_path, SCHEMA), location=location, io_properties=s3_server.properties
    )
    result = run_batches(config(), [table], [source([b'{"id":1}', b'{"id":2}'])])
    [file] = result.files["db.t1"]
    assert file.file_path.startswith(f"{location}/data/")
    io = PyArrowFileIO(s3_server.properties)
    assert len(io.new_input(file.file_path)) == file.file_size_in_bytes
    refused = run_batches(config(), [table], [source([b'{"id":3}', b'{"id":"x"}'])])
    assert refused.error is not None
    assert not refused.files

"""Announced data files as files of a Parquet folder: where readers find them.

Rules of this file:
- The name is computed from the announced name and partition values alone, so every coordinator
  publishes a file under the same name.
- A path that no worker would announce is refused: control events come from a topic that others can
  write to.
"""

from __future__ import annotations

from connect.errors import CommitRefused
from connect.gateways.parquet.hive_paths import is_too_long, partition_path
from connect.gateways.parquet.parquet_commit import PublishedFile, staged_name
from connect.gateways.table_log import TableVersion
from control_schemas.events import ContentFile, FileContent


def parquet_file(
    file: ContentFile,
    table: TableVersion[PublishedFile],
    now_ms: int,  # noqa: ARG001 - of the committer; names of files have their time
) -> PublishedFile:
    """Return an announced file as a file to publish.

    Args:
        file: as announced.
        table: the version that it is added to.
        now_ms: wall clock.

    Raises:
        CommitRefused: ``parquet_deletes``, ``schema_replaced``, ``file_outside_table``.
    """
    if file.content is not FileContent.DATA:
        raise CommitRefused(
            "delete files cannot be committed to a Parquet folder; skip them, and find the process "
            "that announced them",
            code="parquet_deletes",
            file=file.file_path,
        )
    staged = file.file_path.removeprefix(f"{table.location}/")
    name = staged_name(staged)
    values = {field.field_id: field.value for field in file.partition}
    if values.keys() != {part.field_id for part in table.spec.fields}:
        raise CommitRefused(
            "a file has other partition columns than the table; skip the file, and find the "
            "process that announced it",
            code="schema_replaced",
            file=file.file_path,
        )
    folder = partition_path(table.schema, table.spec, values)
    if name is None or is_too_long(table.location, folder, name):
        raise CommitRefused(
            "an announced file is not a staged file of the table; skip it, and find the process "
            "that announced it",
            code="file_outside_table",
            file=file.file_path,
        )
    path = f"{folder}/{name}" if folder else name
    return PublishedFile(staged, path, file.record_count, file.file_size_in_bytes)

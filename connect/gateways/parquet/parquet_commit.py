"""One commit of a Parquet folder, and the names of its files.

Rules of this file:
- A commit holds the whole state of the table but the earlier files: schema, partitions, and the
  last version of each transaction identifier. So the newest commit is enough to continue.
- The names of staged files and of the log begin with ``_`` or end otherwise than ``.parquet``, so
  that no reader takes them for data: neither one that ignores hidden folders, nor a glob
  ``**/*.parquet``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from connect.errors import CommitRefused
from connect.gateways.storage.log_sizes import check_values
from control_schemas import bounded_json

OWN_FOLDER: Final = "_icefloe"
COMMITS: Final = f"{OWN_FOLDER}/commits"
CHECKPOINT: Final = f"{OWN_FOLDER}/checkpoint.json"
CONDITIONS: Final = f"{OWN_FOLDER}/conditional-writes"
STAGED: Final = f"{OWN_FOLDER}/staged"
STAGED_SUFFIX: Final = ".staged"
_FORM: Final = 1
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_STAGED_NAME: Final = re.compile(rf"{re.escape(STAGED)}/([^/]+\.parquet)\.staged")


def commit_path(number: int) -> str:
    """Return the file of a commit."""
    return f"{COMMITS}/{number:020}.json"


def marker_path(number: int) -> str:
    """Return the file that says that all files of a commit are published."""
    return f"{COMMITS}/{number:020}.published"


def newest_number(names: Iterable[str]) -> int | None:
    """Return the highest number among the names of commits; None if there is none."""
    return max((int(m[1]) for m in map(_COMMIT.fullmatch, names) if m), default=None)


def staged_name(path: str) -> str | None:
    """Return the name under which a staged file is published; None for any other path."""
    match = _STAGED_NAME.fullmatch(path)
    return match[1] if match else None


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file of a commit.

    Attributes:
        staged: where the worker wrote it, below the table's location.
        path: where readers find it, below the table's location.
        rows: in the file.
        size_bytes: of the file.
    """

    staged: str
    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParquetCommit:
    """One commit: what it added, and the state of the table after it.

    Attributes:
        number: of the commit; 0 created the table.
        table_uuid: the table's identity.
        made_ms: milliseconds since 1970.
        schema: as Iceberg schema.
        spec: partition columns.
        properties: of the table.
        transactions: the last version of each transaction identifier.
        summary: properties of the commit, as of an Iceberg snapshot.
        files: that it added.
    """

    number: int
    table_uuid: uuid.UUID
    made_ms: int
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    summary: Mapping[str, str]
    files: tuple[PublishedFile, ...]

    def following(self, made_ms: int, **changes: Any) -> ParquetCommit:
        """Return the next commit, without files and summary unless given."""
        fields = {"summary": {}, "files": (), **changes}
        return replace(self, number=self.number + 1, made_ms=made_ms, **fields)

    def to_bytes(self) -> bytes:
        """Return the content of the commit's file."""
        stored = {
            "form": _FORM,
            "number": self.number,
            "table-uuid": str(self.table_uuid),
            "made-at-ms": self.made_ms,
            "summary": dict(self.summary),
            "rows": sum(file.rows for file in self.files),
            "files": [
                {"path": f.path, "rows": f.rows, "bytes": f.size_bytes, "staged": f.staged}
                for f in self.files
            ],
            "transactions": dict(self.transactions),
            "schema": json.loads(self.schema.model_dump_json()),
            "partition-spec": json.loads(self.spec.model_dump_json()),
            "properties": dict(self.properties),
        }
        return json.dumps(stored, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the content of a commit's file.

        Raises:
            CommitRefused: ``log_unreadable``; ``metadata_too_large``; ``parquet_unsupported``: a
                newer version wrote it.
        """
        check_values(content)
        try:
            stored = bounded_json.loads(content.decode())
            if stored["form"] != _FORM:
                raise CommitRefused(
                    f"the log has form {stored['form']}, and this version reads {_FORM}: use the "
                    "version that wrote it, or a newer one",
                    code="parquet_unsupported",
                )
            return cls(
                number=_whole(stored["number"]),
                table_uuid=uuid.UUID(stored["table-uuid"]),
                made_ms=_whole(stored["made-at-ms"]),
                schema=Schema.model_validate(stored["schema"]),
                spec=PartitionSpec.model_validate(stored["partition-spec"]),
                properties=_checked(stored["properties"], str),
                transactions=_checked(stored["transactions"], int),
                summary=_checked(stored["summary"], str),
                files=tuple(map(_file, stored["files"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommitRefused(
                f"a commit of the folder's log cannot be read ({type(error).__name__}): restore it",
                code="log_unreadable",
            ) from error


def _file(stored: Mapping[str, Any]) -> PublishedFile:
    """Return a file of a commit; others may have written it.

    Raises:
        ValueError: the file is not staged, or its path is not below the table's folder.
    """
    staged, path = stored["staged"], stored["path"]
    parts = path.split("/")
    is_inside = not {"", ".", "..", OWN_FOLDER} & set(parts) and "\0" not in path
    if not is_inside or _STAGED_NAME.fullmatch(staged) is None or "\0" in staged:
        raise ValueError
    return PublishedFile(staged, path, _whole(stored["rows"]), _whole(stored["bytes"]))


def _checked(stored: Mapping[str, Any], kind: type) -> dict[str, Any]:
    if not all(type(value) is kind for value in stored.values()):
        raise TypeError
    return dict(stored)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value

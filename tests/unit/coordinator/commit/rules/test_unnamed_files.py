"""Which files of a round are deleted: only those that the table certainly does not name."""

from __future__ import annotations

import ast
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFileIO

from coordinator.commit.rules.unnamed_files import delete_unnamed
from tests.support.sources import ROOT, modules, nodes

OWN_METADATA = {
    "coordinator/commit/iceberg/commit_attempt.py": "manifests of attempts that failed",
    "coordinator/commit/iceberg/committer.py": "metadata files that the table's log dropped; new "
    "files of a commit that was not applied",
    "coordinator/commit/iceberg/replaced_columns.py": "new files of a commit that was not made",
    "coordinator/commit/iceberg/table_expiry.py": "files that no kept snapshot lists, compared",
    "coordinator/commit/metadata/prepared_manifests.py": "manifests that no snapshot lists",
    "coordinator/commit/row_changes/row_removal.py": "new files of a commit that was not applied",
    "coordinator/commit/rules/unnamed_files.py": "all others",
}
"""Modules of the coordinator that delete files, and which."""


def test_a_named_file_is_kept_in_every_spelling(tmp_path: Path) -> None:
    """And without knowledge of the table all are."""
    live, old = tmp_path / "live.parquet", tmp_path / "old.parquet"
    live.touch()
    old.touch()
    io = PyArrowFileIO()
    paths = [f"file://{tmp_path}/./live.parquet", f"file:{tmp_path}//live.parquet", f"file://{old}"]
    assert delete_unnamed(io, paths, None) == 0
    assert delete_unnamed(io, paths, [str(live), "file:///other/old.parquet"]) == 1
    assert live.exists()
    assert not old.exists()


def test_no_other_module_deletes_announced_files() -> None:
    """A module that deletes files is in the list, with what it deletes."""
    importing = {
        str(path.relative_to(ROOT))
        for path in modules("coordinator")
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and "delete_files" in {n.name for n in node.names}
    }
    assert importing == set(OWN_METADATA)

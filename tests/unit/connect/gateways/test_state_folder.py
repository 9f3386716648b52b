"""Files of a state in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.config.location_policy import LocationPolicy
from connect.errors import ConfigError, RetriableError
from connect.gateways.storage.state_folder import StateFolder


def folder(root: Path, policy: LocationPolicy | None = None) -> StateFolder:
    """Return the folder ``state`` below a root."""
    location = str(root / "state")
    properties = {"type": "aggregate", "aggregate.root": location}
    return StateFolder(properties, location, policy or LocationPolicy())


def test_files_are_written_listed_read_and_deleted(tmp_path: Path) -> None:
    """Names are paths below the folder, which need not exist."""
    files = folder(tmp_path)
    assert files.names() == []
    files.write("g1/manifest", b"one")
    source = tmp_path / "source"
    source.write_bytes(b"two" * 2**20)
    files.upload(source, "g1/deep/file")
    assert files.names() == ["g1/deep/file", "g1/manifest"]
    assert files.read("g1/manifest") == b"one"
    target = tmp_path / "new" / "target"
    files.download("g1/deep/file", target)
    assert target.read_bytes() == source.read_bytes()
    files.delete(["g1/manifest", "g1/none"])
    assert files.names() == ["g1/deep/file"]


def test_missing_files_are_not_an_outage(tmp_path: Path) -> None:
    """The caller decides what a missing file means."""
    files = folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read("none")
    with pytest.raises(FileNotFoundError):
        files.upload(tmp_path / "none", "name")


def test_other_errors_are_retriable(tmp_path: Path) -> None:
    """They name the location."""
    files = folder(tmp_path)
    (tmp_path / "state").write_text("not a folder")
    with pytest.raises(RetriableError, match="of the state at") as error:
        files.write("name", b"")
    assert error.value.code == "state_unavailable"


def test_a_location_must_be_allowed(tmp_path: Path) -> None:
    """The operator lists local folders and grants locations."""
    for policy in (
        LocationPolicy(local=(str(tmp_path / "other"),)),
        LocationPolicy(granted=("s3://lake",)),
    ):
        with pytest.raises(ConfigError) as error:
            folder(tmp_path, policy)
        assert error.value.code == "location_not_granted"

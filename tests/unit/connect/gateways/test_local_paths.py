"""Local paths have the same verdict in every check."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.config.location_policy import LocationPolicy
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.storage.guarded_io import GuardedFileIO

ALLOWED = (
    "{root}",
    "{root}/t/data",
    "file:{root}/t",
    "file://{root}/t",
    "FILE:{root}/t",
    "{root}/t/../u",
    "{root}/what?#is",
    "file:{root}/a/?/../b",
    "warehouse/t",
    "./warehouse",
    "file:warehouse/t",
)
REFUSED = (
    "/",
    "/etc",
    "{root}/..",
    "{root}2/t",
    "file:{root}/../t",
    "file:{root}/a?/../../../t",
    "file:{root}/a#/../../../t",
    "file://host{root}/t",
    "file://{root_relative}/t",
    "warehouse/../t",
    "{root}/link/t",
    "file:{root}/link",
    "{root}/circle/t",
    "{root}/nul\0",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allowed folder, in the current one, with links that lead out of it and nowhere."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "warehouse"
    folder.mkdir()
    (folder / "link").symlink_to("/etc")
    (folder / "circle").symlink_to(folder / "circle")
    return folder


def _verdicts(root: Path, listed: str, location: str) -> tuple[bool, bool]:
    """What the client's policy and the connector's policy say."""
    given = location.format(root=root, root_relative=str(root).lstrip("/"))
    node = {"icefloe.rest.users.file": "users", "icefloe.local.paths.allowed": listed}
    try:
        AccessPolicy.of(node).check_location(given)
    except ConfigError as error:
        code = error.code
    else:
        code = None
    assert code in {None, "path_refused"}
    return code is None, LocationPolicy.of("c", node).refusal(given) is None


@pytest.mark.parametrize("listed", ["{root}", "/nowhere, {root}/ ", "file:{root}", "file://{root}"])
@pytest.mark.parametrize("location", [*ALLOWED, *REFUSED])
def test_clients_and_policies_agree(root: Path, listed: str, location: str) -> None:
    """A client opens exactly the paths that the policy allows."""
    expected = location in ALLOWED
    assert _verdicts(root, listed.format(root=root), location) == (expected, expected)


def test_with_users_only_listed_local_paths_are_allowed(root: Path) -> None:
    """Without users every path is allowed."""
    assert _verdicts(root, "", "{root}") == (False, False)
    AccessPolicy.of({}).check_location("/etc")
    assert LocationPolicy.of("c", {}).refusal("/etc") is None


@pytest.mark.parametrize("location", REFUSED)
def test_a_client_checks_a_path_before_it_opens_it(root: Path, location: str) -> None:
    """The file system's client asks before it opens."""
    node = {"icefloe.rest.users.file": "users", "icefloe.local.paths.allowed": str(root)}
    install(AccessPolicy.of(node))
    try:
        with pytest.raises(ConfigError):
            GuardedFileIO({}).new_output(location.format(root=root, root_relative=str(root)[1:]))
    finally:
        install(AccessPolicy())

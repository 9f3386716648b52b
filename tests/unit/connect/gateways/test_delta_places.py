"""Places of Delta tables: one text means one folder, for the checks and for the Delta library."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.config.location_policy import LocationPolicy
from connect.config.table_formats import DELTA
from connect.errors import CommitRefused
from connect.gateways.catalog_properties import (
    FOLDER_OF_TABLE,
    FOLDER_ROOTS,
    client_config,
    folder_place_error,
)
from connect.gateways.delta.delta_tables import DeltaTables

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
DELTA_SCHEMA = DeltaSchema.from_json(
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)
SPELLINGS = (
    "%2e%2e/%2E%2E/outside/t",
    "%2e%2e%2f%2e%2e%2foutside%2ft",
    "..\\..\\outside\\t",
    ".\t./.\n./outside/t",
    "../../outside/t#/../../granted/root/t",
    "../../outside/t?/../../granted/root/t",
    "t ",
)
"""Below the root for a plain reader of the text; the library opens another folder."""
NAMES = ("%2e%2e.%2e%2e.outside.t", "db.t#x", "db.t?x", "db. t", "db.t ", "db.t\x7f")


def tables(root: Path, **locations: str) -> DeltaTables:
    """The tables of a connector that may use ``root`` only."""
    properties = {"type": "delta", FOLDER_ROOTS[DELTA]: f"file://{root}"}
    own = {FOLDER_OF_TABLE + name: location for name, location in locations.items()}
    granted = LocationPolicy((str(root),), (str(root),))
    return DeltaTables({**client_config(properties).properties, **own}, granted)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_library_would_open_another_folder(tmp_path: Path, spelling: str) -> None:
    """The reason for the rule: a URL has other rules than a path."""
    root = tmp_path / "granted" / "root"
    DeltaTable.create(f"file://{root}/{spelling}", DELTA_SCHEMA)
    literal = [path for path in root.glob("**/_delta_log") if path.parent == root / spelling]
    assert not literal


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_location_with_two_meanings_is_refused(tmp_path: Path, spelling: str) -> None:
    """Before anything is created."""
    root = tmp_path / "granted" / "root"
    location = f"file://{root}/{spelling}"
    bound = tables(root, t=location)
    with pytest.raises(CommitRefused) as refused:
        bound.create(("t",), SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})
    assert refused.value.code in {"delta_location", "location_not_granted"}
    assert not list(tmp_path.glob("**/_delta_log"))
    assert folder_place_error(DELTA, location) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_record_stays_below_the_root(tmp_path: Path, name: str) -> None:
    """A route field names tables; a record must not choose another folder."""
    bound = tables(tmp_path / "granted" / "root")
    with pytest.raises(CommitRefused) as refused:
        bound.create(tuple(name.split(".")), SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})
    assert refused.value.code == "table_name"
    assert not list(tmp_path.glob("**/_delta_log"))


@pytest.mark.parametrize("name", ["db.t", "db.t-1_x", "Länder.tägliche käufe", "db.a+b=c&d"])
def test_other_names_are_folders_as_they_are(tmp_path: Path, name: str) -> None:
    """Spaces within a name and letters outside ASCII included."""
    bound = tables(tmp_path)
    bound.create(tuple(name.split(".")), SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})
    assert (tmp_path.joinpath(*name.split(".")) / "_delta_log").is_dir()
    assert bound.load(tuple(name.split("."))).version == 0


@pytest.mark.parametrize(
    "location",
    ["s3://lake/team-a/%2e%2e/team-b", "s3://lake/a?b", "s3a://lake/#", "abfss://c@h/x\\y", "s3:x"],
)
def test_locations_of_stores_are_checked_too(location: str) -> None:
    """The library parses all of them as URLs."""
    assert folder_place_error(DELTA, location) is not None


@pytest.mark.parametrize(
    "location",
    ["s3://lake/team-a/t", "/srv/lake", "file:///srv/lake", "file:/srv/lake", "lake/tables"],
)
def test_plain_locations_are_allowed(location: str) -> None:
    """With and without a scheme."""
    assert folder_place_error(DELTA, location) is None

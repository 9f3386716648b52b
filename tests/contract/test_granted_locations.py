"""Tables and metadata outside the granted locations are refused, also if a catalog names them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from connect.config.location_policy import LocationPolicy
from connect.errors import CommitRefused, ConfigError
from connect.gateways.catalog.catalog import open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableFailed
from tests.support.stack import RestCatalog
from tests.support.table_harness import SCHEMA, TableHarness
from tests.support.tables import QuickClock, connector


def _places(folder: str) -> LocationPolicy:
    return LocationPolicy(local=(folder,))


def test_a_catalog_cannot_choose_another_location(
    rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    """No file is written to a table that a REST catalog locates in another folder."""
    anywhere = open_catalog("iceberg", rest_catalog.properties)
    table = anywhere.create(("db", f"t-{uuid4().hex[:8]}"), SCHEMA)
    bound = open_catalog("iceberg", rest_catalog.properties, _places(str(tmp_path)))
    with pytest.raises(CommitRefused) as refused:
        bound.load(table.name())
    assert refused.value.code == "location_not_granted"
    commit = TableHarness(anywhere, table).round(0)
    config = connector("c", [".".join(table.name())])
    outcome = Committer(bound, config, QuickClock()).commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("location_not_granted", False)
    for gateway in (anywhere, bound):
        gateway.close()


def test_a_location_is_checked_before_a_table_is_created(
    sql_catalog_properties: dict[str, str], tmp_path: Path
) -> None:
    """A table is not created if its location or its data path is outside the grant."""
    warehouse = sql_catalog_properties["warehouse"]
    folders = (warehouse, str(tmp_path))
    bound = open_catalog("iceberg", sql_catalog_properties, LocationPolicy(local=folders))
    outside = f"/{uuid4().hex}"
    with pytest.raises(CommitRefused):
        bound.create(("db", "t"), SCHEMA, location=outside)
    with pytest.raises(CommitRefused):
        bound.create(
            ("db", "t"),
            SCHEMA,
            location=f"{warehouse}/t",
            properties={"write.data.path": outside},
        )
    assert not Path(outside).exists()
    assert not bound.exists(("db", "t"))
    bound.close()


def test_a_metadata_location_of_a_database_is_checked(
    sql_catalog_properties: dict[str, str], tmp_path: Path
) -> None:
    """Before it is read."""
    outside = tmp_path / "secret.txt"
    outside.write_text("canary")
    anywhere = open_catalog("iceberg", sql_catalog_properties)
    anywhere.create(("db", "t"), SCHEMA)
    anywhere.close()
    engine = create_engine(sql_catalog_properties["uri"])
    with engine.begin() as connection:
        connection.execute(
            text("update iceberg_tables set metadata_location = :at"), {"at": f"file://{outside}"}
        )
    engine.dispose()
    places = (
        sql_catalog_properties["warehouse"],
        sql_catalog_properties["uri"].removeprefix("sqlite:///"),
    )
    bound = open_catalog("iceberg", sql_catalog_properties, LocationPolicy(local=places))
    with pytest.raises(CommitRefused) as refused:
        bound.load(("db", "t"))
    assert refused.value.code == "location_not_granted"
    assert "canary" not in str(refused.value)
    bound.close()


@pytest.mark.parametrize("key", ["uri", "warehouse"])
def test_a_local_catalog_is_below_an_allowed_folder(
    sql_catalog_properties: dict[str, str], key: str, tmp_path: Path
) -> None:
    """No SQLite file and no warehouse outside the allowed folders is opened or created."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
    properties = {
        **sql_catalog_properties,
        "uri": f"sqlite:///{allowed}/c.db",
        "warehouse": f"{allowed}/wh",
    }
    open_catalog("iceberg", properties, _places(str(allowed))).close()
    properties[key] = properties[key].replace(str(allowed), str(other))
    with pytest.raises(ConfigError) as refused:
        open_catalog("iceberg", properties, _places(str(allowed)))
    assert refused.value.code == "location_not_granted"
    assert not list(other.iterdir())

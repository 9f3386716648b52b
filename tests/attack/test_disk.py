"""The disks of the node's machines, attacked with paths of catalogs and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize(
    "change",
    [
        {"iceberg.catalog.uri": "sqlite:///{outside}/taken.db"},
        {"iceberg.catalog.uri": "sqlite:///{inside}/../../taken.db"},
        {"iceberg.catalog.uri": "sqlite:///file:{inside}/%2e%2e/%2e%2e/taken.db?uri=true"},
        {"iceberg.catalog.warehouse": "file:{outside}/warehouse"},
        {"iceberg.catalog.warehouse": "{inside}/../../warehouse"},
        {"iceberg.tables.default-location": "{outside}/${{table}}"},
        {"iceberg.table.alice.t.location": "file://{outside}/t"},
        {"iceberg.tables.auto-create-props.write.data.path": "{outside}/data"},
        {"iceberg.tables.auto-create-props.write.metadata.path": "{outside}/metadata"},
        {"icefloe.format": "delta", "icefloe.delta.location": "{outside}/delta"},
        {"icefloe.format": "delta", "icefloe.delta.location": "file://{inside}/%2e%2e/%2e%2e/d"},
        {"icefloe.format": "delta", "icefloe.delta.location": "file://{outside}#/..{inside}/d"},
        {
            "icefloe.format": "delta",
            "icefloe.delta.location": "file://{inside}",
            "iceberg.table.alice.t.location": "file://{inside}/..\\..\\d",
        },
    ],
)
def test_local_paths_stay_below_the_allowed_folders(
    attacked: AttackedStack, tmp_path: Path, change: dict[str, str]
) -> None:
    """Validate and create refuse catalogs and tables in other places, and nothing is made."""
    inside = Path(attacked.stack.catalog_properties["warehouse"].removeprefix("file://"))
    config = attacked.connector(
        topics=attacked.topic("alice-disk"),
        iceberg__tables="alice.t",
        iceberg__tables__auto_create_enabled="true",
    )
    if "icefloe.format" in change:
        config = {k: v for k, v in config.items() if not k.startswith("iceberg.catalog.")}
    config |= {k: v.format(outside=tmp_path, inside=inside) for k, v in change.items()}
    answer = attacked.alice.validate({**config, "name": "alice-disk"})
    assert answer.status_code == 200
    assert answer.json()["error_count"] >= 1
    assert attacked.alice.create("alice-disk", config).status_code == 400
    assert not list(tmp_path.iterdir())
    assert not (inside.parent.parent / "taken.db").exists()
    assert not (inside.parent.parent / "d").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"iceberg.catalog.uri": "postgresql://u@192.0.2.1/d?passfile=/etc/passwd"},
        {"iceberg.catalog.uri": "postgresql://u@192.0.2.1/d?sslkey=/etc/passwd&sslcert=/etc/x"},
        {"iceberg.catalog.uri": "postgresql://u@192.0.2.1/d?service=x"},
        {"iceberg.catalog.uri": "sqlite:///{inside}/x.db?vfs=unix-none"},
        {"value.converter.schema.registry.ssl.keystore.location": "/etc/passwd"},
        {"iceberg.catalog.ssl.cabundle": "/etc/passwd"},
    ],
)
def test_no_client_reads_files_that_a_tenant_names(
    attacked: AttackedStack, change: dict[str, str]
) -> None:
    """Options of libpq and SQLite, and certificates of the node, are refused."""
    inside = Path(attacked.stack.catalog_properties["warehouse"].removeprefix("file://"))
    config = attacked.connector(topics=attacked.topic("alice-disk"), iceberg__tables="alice.t")
    config |= {k: v.format(inside=inside) for k, v in change.items()}
    answer = attacked.alice.validate({**config, "name": "alice-disk"}).json()
    assert answer["error_count"]
    assert attacked.alice.create("alice-disk", config).status_code == 400

"""What docs/how-to/uninstall.md says is left of a connector has the names of the code."""

from __future__ import annotations

import re

from connect.operations.dead_letter_topic import replay_group
from connect.validation.parse import parse
from coordinator.commit.iceberg.floor import floor_keys
from tests.support.sources import ROOT


def test_names_are_those_of_a_connector() -> None:
    """Groups, control topic, tag and table properties."""
    page = (ROOT / "docs/how-to/uninstall.md").read_text("utf-8")
    config = parse(
        {
            "name": "orders",
            "connector.class": "IcebergSinkConnector",
            "topics": "orders",
            "iceberg.tables": "shop.orders",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://catalog",
        }
    )
    assert f"--group {config.connect_group_id} --group {config.control_group_id}" in page
    for name in (
        config.control_topic,
        replay_group(config.name),
        floor_keys(config, "shop.orders").tag,
    ):
        assert f"`{name}`" in page
    listed = re.findall(r"`(icefloe\.[a-z-]+)\.?\*`", page)
    written = (
        config.offsets_mirror_property,
        config.topic_id_property,
        config.valid_through_mirror_property,
        config.valid_through_reset_property,
    )
    assert all(name.startswith(tuple(listed)) for name in written)

"""One running stack for all acceptance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connect.embedded.stack import Stack
from tests.running_stack import RunningStack

CANARIES = {name: f"canary-{name}-7f3c9e" for name in ("env", "sasl", "inline")}


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """The embedded stack, its node as its user would set it up for schemaless JSON."""
    properties = {
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        # without SASL at the broker the clients carry it and do not use it
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="user" password="{CANARIES["sasl"]}";'
        ),
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ICEFLOE_CATALOG_CANARY", CANARIES["env"])
        with Stack(tmp_path_factory.mktemp("stack"), node_properties=properties) as stack:
            made = RunningStack(stack)
            yield made
            made.close()

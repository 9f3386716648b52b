"""The lists of client properties against the Kafka clients that Spark and the broker come with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from connect.config.keys.client_names import ALLOWED, REFUSED
from connect.jvm import jars
from connect.jvm.java import find_java
from tests.support.java_classes import compiled

pytestmark = pytest.mark.java
SOURCE = Path(__file__).parents[1] / "java" / "ClientNames.java"


@pytest.mark.parametrize("group", ["spark-kafka", "kafka"])
def test_every_client_property_is_allowed_or_refused(group: str) -> None:
    """A new property of a Kafka client fails this test until it is listed."""
    class_path = compiled([SOURCE], f"{jars.class_path(group)}:{jars.pyspark_jars_dir()}/*")
    done = subprocess.run(
        [find_java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, SOURCE.stem],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    names = {name for name in done.stdout.split() if not name.startswith("internal.")}
    assert len(names) > 100
    assert names - ALLOWED - REFUSED.keys() == set()

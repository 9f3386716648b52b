"""Runs ``tests/java/records`` in a JVM: what the Java libraries do with records."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connect.jvm import jars
from connect.jvm.java import find_java
from tests.golden.records_rules import Case
from tests.support.java_classes import compiled

SOURCES = Path(__file__).parents[1] / "java" / "records"
# of the same classes the sink's count
GROUPS = ("java-sink", "java-connect", "java-avro", "debezium-postgres", "debezium-mongodb")
MAIN = "org.apache.iceberg.connect.data.RecordOracle"
TIMEOUT_S = 3600


class RecordOracle:
    """What Kafka Connect's and the Iceberg sink's own classes do with records."""

    def __init__(self) -> None:
        libraries = os.pathsep.join(str(jar) for group in GROUPS for jar in jars.resolve(group))
        # in the class path's own loader: what it calls is public to its package only
        self._class_path = compiled(sorted(SOURCES.glob("*.java")), libraries)

    def ask(self, cases: Sequence[tuple[str, Case]]) -> list[dict[str, Any]]:
        """What Java does with cases.

        Args:
            cases: each with its kind: the folder of ``tests/golden/records`` that holds its like,
                below ``schema`` and ``routing`` the name of the file.

        Returns:
            The ``expected`` part of each. A case that Java's own model cannot hold has an error
            of the stage ``input``.
        """
        lines = "".join(json.dumps({**case, "kind": kind}) + "\n" for kind, case in cases)
        command = [
            *(find_java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"),
            *("-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US"),
            *("-cp", self._class_path, MAIN),
        ]
        done = subprocess.run(
            command, input=lines.encode(), capture_output=True, check=False, timeout=TIMEOUT_S
        )
        answers = done.stdout.decode().splitlines()
        assert len(answers) == len(cases), done.stderr.decode()[-3000:]
        return [json.loads(answer) for answer in answers]


def kind_of(path: Path) -> str:
    """Return the kind of the cases in a file of recordings."""
    return path.stem if path.parent.name in {"schema", "routing"} else path.parent.name

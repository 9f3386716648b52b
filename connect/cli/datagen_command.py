"""``icefloe datagen -f spec.yaml``: produces generated records."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from connect.cli.direct_access import Broker, Properties
from connect.cli.terminal import echo


def datagen(
    file: Annotated[Path, typer.Option("--file", "-f", help="Specification: JSON or YAML.")],
    bootstrap_server: Broker = None,
    properties: Properties = None,
    registry: Annotated[
        str | None, typer.Option("--schema-registry", help="URL of the schema registry, for Avro.")
    ] = None,
    *,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=0, help="Replaces count; 0 has no end.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0, help="Replaces rate: records per second; 0 is no limit."),
    ] = None,
) -> None:
    """Produce generated records to a topic, for tests and demonstrations, until Ctrl-C or count."""
    from connect.operations.connector_clients import read_properties  # noqa: PLC0415 - on use
    from connect.operations.datagen.generator import generate  # noqa: PLC0415 - on use
    from connect.operations.datagen.record_spec import read_spec, replaced  # noqa: PLC0415 - on use
    from connect.validation.providers import Providers  # noqa: PLC0415 - on use

    spec = replaced(read_spec(file), count=count, rate=rate)
    node = read_properties(properties, bootstrap_server)
    kafka = Providers(node, os.environ).resolve_all(node)
    options = {"schema.registry.url": registry} if registry else {}
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        sent = generate(spec, kafka, options, is_stopping=stopping.is_set)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    echo(f"{sent} records in {spec.topic}")

"""Logs of Delta tables that no writer should have made: the table fails, with a code."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from connect.errors import IcefloeError
from connect.gateways.catalog_properties import FOLDER_ROOTS, client_config
from connect.gateways.delta.delta_tables import DeltaTables
from connect.gateways.folder_catalog import FolderCatalog

CASES = 400
VALUES: tuple[Any, ...] = (
    *(None, -1, 2**70, "", "x" * 50, [], {}, True, 1.5, "\x00", "null", [[]], {"a": 1}),
    *("map", "decimal(99,-3)", {"type": "array"}, {"type": "struct", "fields": [{}]}),
)


def mutate(action: Any, chance: random.Random) -> None:
    """Replace or remove one value."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(action)
    node, key = chance.choice(places)
    if isinstance(node, dict) and chance.random() < 0.3:
        del node[key]
    else:
        node[key] = chance.choice(VALUES)


def corrupted(actions: list[Any], chance: random.Random) -> str:
    """A log with one wrong value in an action or in the schema, or one that ends too early."""
    changed = json.loads(json.dumps(actions))
    metadata = next(each["metaData"] for each in changed if "metaData" in each)
    if chance.random() < 0.5:
        schema = json.loads(metadata["schemaString"])
        mutate(schema, chance)
        metadata["schemaString"] = json.dumps(schema)
    else:
        mutate(changed, chance)
    text = "\n".join(json.dumps(each) for each in changed if each is not None)
    return text[: chance.randrange(len(text))] if chance.random() < 0.1 else text


def test_a_wrong_log_is_an_error_of_its_table(tmp_path: Path) -> None:
    """For the coordinator and for the worker, and no panic."""
    location = tmp_path / "db" / "t"
    text = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("part", "string"))
        ],
    }
    schema = DeltaSchema.from_json(json.dumps(text))
    DeltaTable.create(f"file://{location}", schema, partition_by=["part"])
    log = location / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    root = {"type": "delta", FOLDER_ROOTS["delta"]: f"file://{tmp_path}"}
    properties = client_config(root).properties
    tables = DeltaTables(properties)
    catalog = FolderCatalog("d", tables)
    outcomes: list[str] = []
    named: set[object] = set()
    for seed in range(CASES):
        log.write_text(corrupted(actions, random.Random(seed)))
        try:
            tables.load(("db", "t")).transaction("floor")
            outcomes.append("ok")
        except IcefloeError as error:
            outcomes.append(error.code)
            named.add(error.coordinates.get("table"))
        with contextlib.suppress(IcefloeError):
            catalog.load_table(("db", "t"))
    assert outcomes.count("ok") < CASES
    assert named == {"db.t"}
    assert {"ok", "catalog_unavailable"} <= set(outcomes)

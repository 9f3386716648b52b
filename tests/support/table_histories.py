"""Tables with a long history that was made up."""

from __future__ import annotations

import json
from uuid import uuid4

from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway


def with_history(catalog: CatalogGateway, table: Table, snapshots: int) -> Table:
    """Register a table again, with its only snapshot repeated so many times.

    Args:
        catalog: of the table.
        table: with one snapshot.
        snapshots: to have.
    """
    name = table.name()
    metadata = json.loads(catalog.load(name).metadata.model_dump_json())
    [first] = metadata["snapshots"]
    ids = [first["snapshot-id"] + n for n in range(snapshots)]
    metadata["snapshots"] = [
        {**first, "snapshot-id": own, "sequence-number": n} for n, own in enumerate(ids, 1)
    ]
    for snapshot, parent in zip(metadata["snapshots"][1:], ids, strict=False):
        snapshot["parent-snapshot-id"] = parent
    times = {"timestamp-ms": first["timestamp-ms"]}
    metadata["snapshot-log"] = [{"snapshot-id": own, **times} for own in ids]
    metadata["last-sequence-number"] = snapshots
    metadata["current-snapshot-id"] = ids[-1]
    for ref in metadata["refs"].values():
        ref["snapshot-id"] = ids[-1]
    path = f"{table.location()}/metadata/00009-{uuid4()}.metadata.json"
    with table.io.new_output(path).create() as file:
        file.write(json.dumps(metadata).encode())
    client = catalog._client()
    client.drop_table(name)
    client.register_table(name, path)
    return catalog.load(name)

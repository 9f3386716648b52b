"""``KafkaMetadataTransform`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from connect.records.transforms.kafka_metadata_transform import external_of
from worker.transforms.insert_field import ORIGINS, Insert, constant
from worker.transforms.rows import (
    ColumnStep,
    Rows,
)


def kafka_metadata(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``KafkaMetadataTransform``."""
    name, external = options["field_name"], external_of(options["external_field"])
    columns = dict(ORIGINS)
    if external is not None:
        columns[external[0]] = constant(external[1])
    if not options["nested"]:
        return Insert({f"{name}_{n}": make for n, make in columns.items()}, timed=True)

    def group(rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays(
            [make(rows) for make in columns.values()], names=list(columns)
        )

    return Insert({name: group}, timed=True)

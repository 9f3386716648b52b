"""Outputs of a connector beside its tables, typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTPUTS: Final = "icefloe.outputs"
OUTPUT_PREFIX: Final = "icefloe.output."


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """``icefloe.output.<name>.*``: the rows that one Kafka topic receives.

    Attributes:
        name: of the output.
        topic: receives the rows.
        where: JMESPath condition of the rows; None for all rows.
        key: path of the column that is the message key; empty for none.
        columns: the columns to send; empty for all.
        tables: the tables whose rows are sent; empty for all.
        partitions: of the topic, if it must be created.
        replication_factor: of the topic, if it must be created; -1 is the broker's default.
    """

    name: str
    topic: str
    where: str | None = None
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    partitions: int = 1
    replication_factor: int = -1

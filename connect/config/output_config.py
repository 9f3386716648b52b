"""Outputs of a connector in addition to its tables, typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OUTPUTS: Final = "icefloe.outputs"
OUTPUT_PREFIX: Final = "icefloe.output."


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """``icefloe.output.<name>.webhook.*``: a server that receives rows.

    Attributes:
        url: of the server; a secret.
        authorization: value of the header ``Authorization``, a secret; None sends none.
        batch_rows: rows of one request at most.
        retry_ms: how long a request that is not accepted is repeated.
    """

    url: str = field(repr=False)
    authorization: str | None = field(default=None, repr=False)
    batch_rows: int = 100
    retry_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """``icefloe.output.<name>.*``: the rows that one Kafka topic or server receives.

    Attributes:
        name: of the output.
        topic: receives the rows; None if a server does.
        where: JMESPath condition of the rows; None for all rows.
        key: path of the column that is the message key; empty for none.
        columns: the columns to send; empty for all.
        tables: the tables whose rows are sent; empty for all.
        partitions: of the topic, if it must be created.
        replication_factor: of the topic, if it must be created; -1 is the broker's default.
        webhook: receives the rows; None if a topic does.
    """

    name: str
    topic: str | None
    where: str | None = None
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    partitions: int = 1
    replication_factor: int = -1
    webhook: WebhookConfig | None = None

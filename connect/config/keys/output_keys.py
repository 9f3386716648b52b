"""Keys of outputs: ``icefloe.outputs`` and ``icefloe.output.<name>.<setting>``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from connect.config.key import Key, at_least, between
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS

OUTPUT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

OUTPUTS_KEY: Final = Key(
    OUTPUTS,
    "LIST",
    "Comma-separated names of outputs. An output sends rows of the connector's tables, as JSON, to "
    "a Kafka topic in the transaction that announces the tables' files, or to a webhook before it. "
    "The keys of each output have the prefix `icefloe.output.<name>.`.",
    "",
)
OUTPUT_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "topic",
        "STRING",
        "Topic that receives the rows, exactly once. It is created if it is missing. It cannot be "
        "a topic that the connector reads, its control topic, or a reserved topic.",
        importance="HIGH",
    ),
    Key(
        "where",
        "STRING",
        "JMESPath condition: rows for which it does not hold are not sent. Its fields are those of "
        "the row's JSON value. Default: all rows.",
    ),
    Key(
        "key",
        "STRING",
        "Column whose text is the message key; a path such as `customer.id` for a field of a "
        "struct. Default: no key.",
    ),
    Key(
        "columns",
        "LIST",
        "Comma-separated top-level columns to send. Default: all columns.",
        "",
    ),
    Key(
        "tables",
        "LIST",
        "Comma-separated tables whose rows are sent. Default: all tables of the connector; a row "
        "that goes to several tables is sent once for each of them.",
        "",
    ),
    Key(
        "topic.partitions",
        "INT",
        "Partitions of the topic, if it is created.",
        "1",
        check=at_least(1),
    ),
    Key(
        "topic.replication.factor",
        "INT",
        "Replication factor of the topic, if it is created; -1 is the broker's default.",
        "-1",
    ),
    Key(
        "webhook.url",
        "PASSWORD",
        "Address (http or https) that receives the rows instead of a topic, at least once. On a "
        "node whose API has users, it cannot be an internal address (`icefloe.hosts.allowed`).",
        importance="HIGH",
        is_secret=True,
    ),
    Key(
        "webhook.authorization",
        "PASSWORD",
        "Value of the header `Authorization` of these requests, for example `Bearer <token>`.",
        is_secret=True,
    ),
    Key(
        "webhook.batch.rows",
        "INT",
        "Rows of one request at most; a request has about 512 KiB at most.",
        "100",
        unit="rows",
        check=between(1, 10_000),
    ),
    Key(
        "webhook.retry.ms",
        "LONG",
        "How long a request that is not accepted is repeated. Then the task restarts and sends the "
        "rows again; with `errors.tolerance=all` they become dead letters.",
        "30000",
        unit="ms",
        check=between(0, 600_000),
    ),
)
_SETTINGS: Final = frozenset(key.name for key in OUTPUT_KEYS)
_SECRETS: Final = frozenset(key.name for key in OUTPUT_KEYS if key.is_secret)


class OutputKey(NamedTuple):
    """A key of an output, in parts.

    Attributes:
        name: of the output.
        setting: name of a key in ``OUTPUT_KEYS``.
    """

    name: str
    setting: str

    @property
    def is_secret(self) -> bool:
        """Whether the value must not be displayed."""
        return self.setting in _SECRETS


def output_key(key: str) -> OutputKey | None:
    """Return the parts of a key of an output; None for other keys."""
    if not key.startswith(OUTPUT_PREFIX):
        return None
    name, _, setting = key.removeprefix(OUTPUT_PREFIX).partition(".")
    return OutputKey(name, setting) if setting in _SETTINGS else None

"""The topics of the tables that a rewind takes back alone.

Rules of this file:
- The configuration must prove that all records of these topics go to these tables, and no record of
  another topic does. Otherwise rows of other tables would be written twice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from connect.config.connector import ConnectorConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.protocol.source_partitions import source_partitions
from connect.records.routing import Router
from connect.records.transforms import transform_classes
from coordinator.rewind.rewind_plan import RewindPlan
from coordinator.rewind.rewind_request import TOPICS_SHARED

_SHOWN_MAX: Final = 20
_KEEP_TOPICS: Final = frozenset(
    {
        "Cast",
        "CopyValue",
        "DebeziumTransform",
        "DmsTransform",
        "DropHeaders",
        "Explode",
        "ExtractField",
        "Filter",
        "Flatten",
        "HeaderFrom",
        "HeaderToValue",
        "HoistField",
        "InsertField",
        "InsertHeader",
        "Jmespath",
        "JsonToMapTransform",
        "KafkaMetadataTransform",
        "MaskField",
        "MongoDebeziumTransform",
        "ParseJson",
        "ParseTimestamp",
        "ReplaceField",
        "SetSchemaMetadata",
        "TimestampConverter",
        "UnwrapUnion",
        "ValueToKey",
    }
)
"""Transformations after which a record has its topic; others may change it."""


def choose_topics(
    planned: RewindPlan, config: ConnectorConfig, admin: KafkaAdmin, only: Collection[str]
) -> None:
    """Choose the topics whose source offsets a plan of some tables moves.

    Args:
        planned: gets the topics, a note, and a problem if records may go to other tables.
        config: the connector, placeholders resolved.
        admin: the cluster.
        only: the tables.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    router = Router(config)
    keeps_topics = all(_keeps_topic(each.class_name) for each in config.transforms)
    committed = admin.committed_all(config.connect_group_id)
    read = {*committed} & {*source_partitions(config, admin.topics())}
    tables = {
        topic: router.table_of_topic(topic) if keeps_topics else None
        for topic in sorted({tp.topic for tp in read})
    }
    planned.topics = frozenset(topic for topic, table in tables.items() if table in only)
    undecided = [topic for topic, table in tables.items() if table is None]
    unread = sorted({*only} - {*tables.values()})
    if undecided or unread:
        reason = (
            f"the records of {', '.join(undecided[:_SHOWN_MAX])} may go to several tables"
            if undecided
            else f"no topic is read for {', '.join(unread[:_SHOWN_MAX])}"
        )
        planned.refuse(
            TOPICS_SHARED,
            "a table goes back alone only if the configuration says which topics it has, and they "
            "have no other table (iceberg.tables.topic-to-table-map, or a name template of "
            f"topics): {reason}; go back with all tables",
        )
    planned.notes.append(
        f"only these topics are read again: {', '.join(sorted(planned.topics))}; rows that came "
        "from other topics are removed and not loaded again"
    )


def _keeps_topic(class_name: str) -> bool:
    known = transform_classes.find(class_name)
    is_ours = known is not None and known[0] in transform_classes.DECLARATIONS
    return is_ours and known is not None and known[0].name in _KEEP_TOPICS

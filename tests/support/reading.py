"""Reads all committed records of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from tests.support.pauses import growing_pauses


def committed_records(
    kafka: Mapping[str, str], *partitions: TopicPartition, first: int = 0
) -> list[KafkaRecord]:
    """Records of partitions from an offset on, when every transaction in them has ended.

    One ``poll`` may return fewer records: a transaction's markers arrive shortly after the commit
    is acknowledged, and a fetch may end at any offset. The test's timeout bounds the wait.

    Args:
        kafka: Java-named client properties.
        partitions: which ones.
        first: where to begin in each.
    """
    admin, pauses = KafkaAdmin(kafka), growing_pauses()
    while (ends := admin.ends(partitions)) != admin.high_watermarks(partitions):
        next(pauses)
    admin.close()
    reader = LogReader(kafka)
    reader.assign(dict.fromkeys(partitions, first))
    records: list[KafkaRecord] = []
    while any(reader.positions()[tp] < end for tp, end in ends.items()):
        records += reader.poll(100)
    reader.close()
    return records

"""Whether a task's topics are still those that it was given.

Rules of this file:
- A topic that was deleted and created again has the same name and other records: an offset of the
  old one means nothing in it. Its identity tells them apart, offsets cannot.
- Looked at before the first read and before each announcement, so that nothing which was read of
  another topic at an old offset is ever announced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connect.errors import DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """The topics of one task.

    Args:
        admin: the cluster.
        topic_ids: name -> identity that was laid out.
        is_named: the configuration names them; else a regex brought them in and they may go.
        on_missing: told that one has gone, before the error.
    """

    admin: KafkaAdmin
    topic_ids: Mapping[str, str]
    is_named: bool
    on_missing: Callable[[], None] = lambda: None

    def check(self, positions: Mapping[TopicPartition, int]) -> None:
        """Make sure that all are there and none is another.

        Args:
            positions: how far each partition is read, where that is known; for the message.

        Raises:
            DataLost: ``source_topic_recreated``, ``source_topic_deleted``.
            RetriableError: ``topic_missing`` for a topic that a regex brought in.
        """
        found = self.admin.topic_ids(self.topic_ids)
        for topic, known in sorted(self.topic_ids.items()):
            now = found.get(topic)
            if now == known:
                continue
            read = {tp.partition: at for tp, at in sorted(positions.items()) if tp.topic == topic}
            if now is None and not self.is_named:
                self.on_missing()
                raise RetriableError("the topic is gone", code="topic_missing", topic=topic)
            what = "" if now is None else f" and created anew (it is now {now})"
            raise DataLost(
                f"topic {topic} was deleted{what}: records that were not announced went with it",
                code="source_topic_deleted" if now is None else "source_topic_recreated",
                topic=topic,
                topic_id=known,
                read_up_to=read or None,
            )

"""Fencing: initialises transactional ids, so their earlier owners can write no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from connect.errors import Fenced
from connect.gateways.kafka.kafka_clients import TransactionalProducer

TRIES = 3
THREADS_MAX = 8


def task_transactional_id(group_id: str, connector: str, task: int) -> str:
    """``<group.id>-<connector>-<task>``."""
    return f"{group_id}-{connector}-{task}"


def coordinator_transactional_id(group_id: str, connector: str, prefix: str | None) -> str:
    """``<group.id>-<connector>-coordinator``, with the connector's prefix if it has one."""
    return f"{prefix or ''}{group_id}-{connector}-coordinator"


def operator_transactional_id(group_id: str, connector: str) -> str:
    """``<group.id>-<connector>-operator``: changes of source offsets by the leader."""
    return f"{group_id}-{connector}-operator"


def take_over(
    properties: Mapping[str, str], transactional_ids: Iterable[str], *, topic: str | None = None
) -> None:
    """Initialise every id and close its producer; on return all earlier owners are fenced.

    Args:
        properties: Java-named producer properties.
        transactional_ids: of the old and of the new layout.
        topic: one that exists; see ``TransactionalProducer.init``.

    Raises:
        Fenced: another process initialises an id again and again.
        RetriableError: the broker did not answer in time.
    """
    ids = list(transactional_ids)
    if not ids:
        return
    with ThreadPoolExecutor(min(THREADS_MAX, len(ids)), thread_name_prefix="fence") as pool:
        for _ in pool.map(lambda each: _take_over(properties, each, topic), ids):
            pass


def _take_over(properties: Mapping[str, str], transactional_id: str, topic: str | None) -> None:
    for left in range(TRIES - 1, -1, -1):
        producer = TransactionalProducer(properties, transactional_id)
        try:
            producer.init(topic=topic)
        except Fenced:
            # a task of the old layout has just started: it will find that it is outdated, but
            # it must be fenced before that
            if not left:
                raise
        else:
            return
        finally:
            producer.close()

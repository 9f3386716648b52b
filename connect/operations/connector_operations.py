"""Operations on one connector that a caller requests: dead letters, migration and catalog checks.

Rules of this file:
- Each operation opens its own clients with the connector's configuration and closes them.
- A node serves several tenants. There an operation covers only dead letters of its own connector,
  a limited number of offsets, and a limited time.
- Methods block; a node calls them on a thread. Answers are JSON objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from connect.clock import Clock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.operations.audit import auditor
from connect.operations.catalog_report import check_catalog_commits
from connect.operations.connector_clients import (
    ConnectorClients,
    ConnectorCluster,
    opened,
    opened_cluster,
)
from connect.operations.dead_letter_replay import DeadLetterReplay, ReplayChoice
from connect.operations.dead_letter_topic import DeadLetterTopic, replay_group
from connect.operations.migration.inspector import Inspector
from connect.operations.preview.connector_preview import preview_connector, preview_in_process
from connect.operations.preview.source_sample import Start
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve

Raw = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OperationLimits:
    """Limits of each operation; None is no limit.

    Attributes:
        counted_offsets_max: newest offsets of a dead letter topic that a count reads.
        replayed_offsets_max: oldest offsets of a dead letter topic that one replay covers.
        text_characters_max: longest text of a record in an answer.
        races_ms_max: time of the races of a catalog check.
        preview_s_max: time of a preview, which then runs in a process of its own.
        operations_max: operations that run at a time.
        is_own_only: exclude dead letters whose headers name another connector.
    """

    counted_offsets_max: int | None = None
    replayed_offsets_max: int | None = None
    text_characters_max: int | None = None
    races_ms_max: int | None = None
    preview_s_max: int | None = None
    operations_max: int = 1
    is_own_only: bool = False


UNLIMITED: Final = OperationLimits()
"""For the command line with a connector's file: the caller's credentials are the limit."""
NODE_LIMITS: Final = OperationLimits(
    counted_offsets_max=200_000,
    replayed_offsets_max=50_000,
    text_characters_max=64 * 1024,
    races_ms_max=45_000,
    preview_s_max=45,
    operations_max=16,
    is_own_only=True,
)
"""For the REST API: an answer arrives within the time limit of a client."""


class ConnectorOperations:
    """Runs operations on connectors, without the herder.

    Args:
        node: node properties: broker, security, providers, policies.
        environ: for placeholders, as the properties allow.
        clock: time and identities.
        limits: of each operation.
        reserved: returns the control topics of all connectors, which no operation reads as source
            or produces to.
    """

    def __init__(
        self,
        node: Mapping[str, str],
        environ: Mapping[str, str],
        clock: Clock,
        limits: OperationLimits = UNLIMITED,
        reserved: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._reserved = reserved
        self._node = node
        self._environ = environ
        self._clock = clock
        self._limits = limits
        self._free = threading.BoundedSemaphore(limits.operations_max)

    def dead_letter_kinds(self, raw: Raw) -> dict[str, Any]:
        """Count the dead letters of a connector by stage, exception, table and source topic.

        Raises:
            DeadLetterError: the connector has no dead letter topic.
            RetriableError: the broker is unavailable, or too many operations run.
        """
        with self._dead_letter_topic(raw) as (cluster, topic):
            kinds = topic.kinds(self._limits.counted_offsets_max)
            return {"connector": cluster.config.name, **kinds}

    def dead_letter(
        self, raw: Raw, partition: int, offset: int, *, with_content: bool
    ) -> dict[str, Any]:
        """Show one dead letter; its key, value and headers only with ``with_content``.

        Raises:
            DeadLetterError: no dead letter of the connector exists at the place.
            RetriableError: the broker is unavailable, or too many operations run.
        """
        with self._dead_letter_topic(raw) as (cluster, topic):
            letter = topic.one(
                partition,
                offset,
                with_content=with_content,
                characters_max=self._limits.text_characters_max,
            )
            return {"connector": cluster.config.name, **letter}

    def replay(self, raw: Raw, choice: ReplayChoice, *, is_applied: bool) -> dict[str, Any]:
        """Produce dead letters to the topics that they came from, or plan that.

        Raises:
            DeadLetterError: a record has no topic to replay it to; no record was produced.
            DataLost: the topic was created again after an earlier replay.
            Fenced: another replay has begun.
            RetriableError: the broker is unavailable, or too many operations run.
        """
        bounded = replace(choice, offsets_max=self._limits.replayed_offsets_max)
        with self._dead_letter_topic(raw) as (cluster, topic):
            name = cluster.config.name
            producer = TransactionalProducer(cluster.producer_properties, replay_group(name))
            try:
                replayed = DeadLetterReplay(topic, bounded, excluded=cluster.excluded).run(
                    producer, is_applied=is_applied
                )
            finally:
                producer.close()
            return {"connector": name, **replayed}

    def audit(self, raw: Raw) -> dict[str, Any]:
        """Compare the records that a connector read with rows in tables and dead letters.

        Raises:
            IcefloeError: the configuration is wrong, or broker or catalog do not answer.
        """
        with self._started(), self._opened(raw) as clients:
            return auditor.audit(clients, self._clock).as_json()

    def migration(self, raw: Raw) -> dict[str, Any]:
        """Report what another sink left of a connector, and whether a start is safe.

        Raises:
            IcefloeError: the configuration is wrong, or broker or catalog do not answer.
        """
        with self._started(), self._opened(raw) as clients:
            inspector = Inspector(
                clients.config, clients.admin, clients.reader, clients.catalog, self._clock
            )
            report = inspector.inspect(clients.partitions)
        return report.as_json()

    def catalog_check(self, raw: Raw, *, races: int, namespace: str | None) -> dict[str, Any]:
        """Race commits on scratch tables of a connector's catalog.

        Raises:
            ConfigError: the configuration is wrong, or the namespace does not exist.
            CommitError, RetriableError: the catalog refuses scratch tables or does not answer.
        """
        providers = Providers(self._node, self._environ)
        parsed = parse(raw, node=self._node, resolve=providers.resolve)
        config = resolve(parsed, providers, node=self._node)
        with self._started():
            return check_catalog_commits(
                config,
                self._clock,
                races=races,
                namespace=namespace,
                time_ms_max=self._limits.races_ms_max,
            ).as_json()

    def preview(self, raw: Raw, *, count: int, start: Start) -> dict[str, Any]:
        """Show what a connector would make of a few records, without writing anything.

        Raises:
            ConfigError: the configuration cannot work, or the preview takes too long.
            IcefloeError: broker or catalog do not answer, or refuse.
        """
        timeout_s = self._limits.preview_s_max
        with self._started():
            if timeout_s is None:
                return preview_connector(
                    raw, self._node, self._environ, self._clock, count=count, start=start
                )
            return preview_in_process(
                raw,
                self._node,
                self._environ,
                count=count,
                start=start,
                timeout_s=timeout_s,
                reserved=self._reserved(),
            )

    def _opened(self, raw: Raw) -> AbstractContextManager[ConnectorClients]:
        return opened(raw, self._node, self._environ, self._reserved())

    @contextmanager
    def _dead_letter_topic(self, raw: Raw) -> Iterator[tuple[ConnectorCluster, DeadLetterTopic]]:
        reserved = self._reserved()
        with (
            self._started(),
            opened_cluster(raw, self._node, self._environ, reserved) as cluster,
        ):
            topic = DeadLetterTopic(
                cluster.config, cluster.admin, cluster.reader, self._limits.is_own_only
            )
            yield cluster, topic

    @contextmanager
    def _started(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            raise RetriableError(
                f"{self._limits.operations_max} operations on connectors run at the moment: try "
                "again later",
                code="busy",
            )
        try:
            yield
        finally:
            self._free.release()

"""The leader part of a node: the config topic, a deployer, and changes of offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.deployment.bounded_runs import BoundedRuns
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.deployment.layout_planner import LayoutPlanner
from connect.node.herder.offsets.offset_changes import OffsetChanges
from connect.node.herder.offsets.rebase import Rebase
from connect.protocol.fencing import task_transactional_id
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.status_store import StatusStore
from connect.validation.parse import parse
from connect.validation.providers import Providers

GROUP = "g"
NAME = "c"


class SkippingClock(SystemClock):
    """The machine's clock, ahead by the time that a test need not wait.

    Attributes:
        skipped_ms: so far.
    """

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        """Milliseconds, with those that were skipped."""
        return super().monotonic_ms() + self.skipped_ms


@dataclass
class LeaderNode:
    """A leading node; a second one with the same config topic takes over from it.

    Args:
        kafka: client properties.
        storage: name of the config topic.
        topic: source topic of the connector.
        control: its control topic.
        tasks: ``tasks.max``.
        more: more keys of the connector.
    """

    kafka: dict[str, str]
    storage: str
    topic: str
    control: str
    tasks: int = 2
    more: dict[str, str] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.group_id = f"{GROUP}-{self.storage}"
        self.clock = SkippingClock()
        self.admin = KafkaAdmin(self.kafka)
        topics = (
            StorageTopic(self.storage, "config.storage.topic", is_ordered=True),
            StorageTopic("status", "status.storage.topic"),
        )
        settings = StoreSettings(self.group_id, "127.0.0.1:1", *topics, self.kafka, self.kafka)
        self.store = ConfigStore(settings, self.admin, SystemClock())
        self.statuses = StatusStore(settings, self.admin, SystemClock())
        self.store.start()
        self.store.lead("127.0.0.1:1", "http://127.0.0.1:1")
        node = NodeConfig.from_properties(
            {
                **self.kafka,
                "group.id": self.group_id,
                "config.storage.topic": self.storage,
                "status.storage.topic": "status",
                "icefloe.state.dir": "nowhere",
            }
        )
        configs = ConnectorConfigs(node, Providers({}, {}), self.store)
        self.deployer = Deployer(
            configs,
            LayoutPlanner(configs, self.store, self.admin, SystemClock(), nodes=lambda: (8, True)),
            self.store,
            self.admin,
            self.clock,
            bounded_runs=BoundedRuns(self.store, self.statuses, self.admin),
            places_for=lambda _name, _tasks: None,
            failed_tasks=lambda _: frozenset(self.failed),
        )
        self.changes = OffsetChanges(self.store, self.admin, self.deployer.offset_events, configs)

    @property
    def group(self) -> str:
        """Group of the source offsets."""
        return f"connect-{NAME}-{self.storage}"

    @property
    def config(self) -> dict[str, str]:
        """The connector's configuration."""
        return {
            "name": NAME,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.topic,
            "tasks.max": str(self.tasks),
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1:1",
            "iceberg.control.topic": self.control,
            "iceberg.connect.group-id": self.group,
            **self.more,
        }

    def create(self) -> None:
        """Store the connector and create its layout."""
        self.store.put_connector(NAME, self.config)
        self.converge()

    def request_state(self, target: str) -> None:
        """Store the connector's target state, and converge."""
        self.store.put_target(NAME, target)  # type: ignore[arg-type]  # one of three
        self.converge()

    def converge(self) -> None:
        """Converge as the herder does; no unit runs that would have to be stopped."""
        self.deployer.converge(NAME, lambda **_: None)

    def rebase(self, requests: ChildRequests) -> Callable[[], object]:
        """Return a call that rebases the stopped connector; ``requests`` answers for its tables."""
        rebase = Rebase(self.store, self.admin, self.deployer.offset_events, requests)
        state = self.store.get(NAME)
        return lambda: rebase.run(state, parse(self.config), (), is_applied=True)

    def task(self, number: int) -> TransactionalProducer:
        """A task's producer, which takes its transactional id over."""
        producer = TransactionalProducer(
            self.kafka, task_transactional_id(self.group_id, NAME, number)
        )
        producer.init()
        return producer

    def store_offsets(self, number: int, offsets: Mapping[int, int]) -> None:
        """A task starts, stores offsets of partitions and ends."""
        producer = self.task(number)
        tps = {TopicPartition(self.topic, p): at for p, at in offsets.items()}
        producer.transact([], group_id=self.group, offsets=tps)
        producer.close()

    def committed(self, partitions: int = 2) -> dict[int, int | None]:
        """Source offsets of the group."""
        tps = [TopicPartition(self.topic, p) for p in range(partitions)]
        return {tp.partition: at for tp, at in self.admin.committed(self.group, tps).items()}

    def floor(self) -> dict[int, int]:
        """The source floor."""
        floor = self.store.get(NAME).source_floor.offsets
        return {tp.partition: at for tp, at in floor.items()}

    def close(self) -> None:
        """Close the clients."""
        self.store.close()
        self.admin.close()

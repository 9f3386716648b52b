"""What recordings are replayed on: the API over a herder in memory, or a whole node on a broker.

Both keep the same contract (``Target``); the suite does not know which it talks to.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from confluent_kafka import Consumer, Producer

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.http_middleware import CrossOrigin
from connect.node.rest.log_levels import LogLevels
from connect.validation.providers import Providers
from tests.golden.connect_rest_plugins import recorded_plugins
from tests.golden.connect_rest_rules import SECRETS
from tests.support.fakes.herder import WORKER_ID, FakeHerder
from tests.support.fakes.rest_server import Reply, RestServer, send
from tests.support.running_node import RunningNode

PROPERTIES = "".join(f"{key}={value}\n" for key, value in SECRETS.items())
ORIGIN = {
    "access.control.allow.origin": "http://ui.example",
    "access.control.allow.methods": "GET,POST,PUT",
}


class Target(Protocol):
    """Something that answers as the recorded worker did."""

    worker: str
    wait_s: float

    def send(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> Reply:
        """One request, the path unchanged."""
        ...

    def do(self, what: Mapping[str, Any]) -> None:
        """What happened outside REST."""
        ...

    def had_offsets(self, group: str, topic: str, values: Mapping[int, int]) -> None:
        """What an earlier run of a recorded scenario left: records read, offsets committed."""
        ...


class FakeTarget:
    """The API over a herder in memory; every change takes effect at once."""

    worker = WORKER_ID
    wait_s = 0.2

    def __init__(self, folder: Path, *, is_second: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="icefloe-recorded-"))
        levels = LogLevels(SystemClock())
        plugins = recorded_plugins(folder)

        def task_class(config: Mapping[str, str]) -> str:
            plugin = plugins.connector(config["connector.class"])
            return (plugin and plugin.task_class) or "Task"

        self.herder = FakeHerder(levels, task_class)
        secrets = self._folder / "secrets.properties"
        secrets.write_text(PROPERTIES)
        allowed = {"config.providers.file.param.allowed.paths": str(self._folder)}
        providers = Providers({"config.providers": "file", **allowed}, {})

        def resolve(text: str) -> str:
            """The recorded worker's folder was its working folder."""
            return providers.resolve(text.replace(f":{secrets.name}:", f":{secrets}:"))

        settings = ApiSettings(
            cross_origin=CrossOrigin.of(*ORIGIN.values()) if is_second else CrossOrigin(),
            is_tracking_topics=not is_second,
            has_admin=not is_second,
        )
        node = NodeInfo(f"http://{WORKER_ID}", "golden-connect", commit="0123456789abcdef")
        self._server = RestServer(
            create_app(
                self.herder.handlers,
                node,
                levels,
                plugins=plugins,
                resolve=resolve,
                settings=settings,
            )
        )
        self.send = self._server.send

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)
        shutil.rmtree(self._folder)

    def do(self, what: Mapping[str, Any]) -> None:
        """Records are there, a foreign consumer sits in a group."""
        match what["what"]:
            case "topic":
                self.herder.created(what["name"], what["partitions"])
            case "produce":
                self.herder.produced(what["topic"], what["partition"], len(what["values"]))
            case "join_group":
                self.herder.foreign_groups.add(what["group"])
            case "leave_group":
                left = {what["group"]} if "group" in what else set(self.herder.foreign_groups)
                self.herder.foreign_groups -= left

    def had_offsets(self, group: str, topic: str, values: Mapping[int, int]) -> None:
        """A connector of that name read them and is gone."""
        for partition, count in values.items():
            self.herder.produced(topic, partition, count)
        self.herder.create(group.removeprefix("connect-"), {"topics": topic})
        self.herder.delete(group.removeprefix("connect-"))


class _RecordedNode(RunningNode):
    script: ClassVar[str] = "recorded_node"


class NodeTarget:
    """A whole node, with stores, herder and child processes, on a broker.

    Args:
        bootstrap_servers: the broker.
        folder: its own.
        is_second: set up as the recorded second worker was.
    """

    wait_s = 60.0

    def __init__(self, bootstrap_servers: str, folder: Path, *, is_second: bool = False) -> None:
        folder = folder / ("golden-second" if is_second else "golden-connect")  # the group's name
        folder.mkdir()
        (folder / "secrets.properties").write_text(PROPERTIES)
        second = {**ORIGIN, "topic.tracking.enable": "false", "admin.listeners": ""}
        self._kafka = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = KafkaAdmin({"bootstrap.servers": bootstrap_servers})
        self._members: dict[str, Consumer] = {}
        self.node = _RecordedNode(
            folder,
            bootstrap_servers,
            **{
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "config.providers": "file",
                "config.providers.file.param.allowed.paths": str(folder),
                "rest.advertised.host.name": "127.0.0.1",
                "icefloe.validate.remote.ms": "0",  # recorded without topics and catalogs
                **(
                    {**second, "connector.client.config.override.policy": "None"}
                    if is_second
                    else {}
                ),
            },
        )

    def __enter__(self) -> Self:
        self.node.start()
        self.worker = self.node.url.removeprefix("http://")
        return self

    def __exit__(self, *_: object) -> None:
        self.node.end()
        self.node.close()
        for group in [*self._members]:
            self._members.pop(group).close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> Reply:
        """One request, the path unchanged."""
        return send(int(self.worker.rpartition(":")[2]), method, path, body, headers)

    def do(self, what: Mapping[str, Any]) -> None:
        """The same on the broker; what is slept for is waited for where it is asked."""
        match what["what"]:
            case "topic":
                self._admin.ensure_topic(what["name"], what["partitions"])
            case "produce":
                self._produce(what["topic"], what["partition"], what["values"])
            case "join_group":
                member = Consumer({**self._kafka, "group.id": what["group"]})
                member.subscribe([what["topic"]])
                self._members[what["group"]] = member
                while not member.assignment():  # the test's timeout bounds it
                    member.poll(0.1)
            case "leave_group":
                for group in [what["group"]] if "group" in what else [*self._members]:
                    self._members.pop(group).close()
            case "sleep":
                time.sleep(min(what["seconds"], 0.3))

    def had_offsets(self, group: str, topic: str, values: Mapping[int, int]) -> None:
        """Records and committed offsets."""
        self._admin.ensure_topic(topic, len(values))
        for partition, count in values.items():
            self._produce(topic, partition, ["{}"] * count)
        at = {TopicPartition(topic, p): count for p, count in values.items()}
        self._admin.alter_offsets(group, at)

    def _produce(self, topic: str, partition: int, values: list[str]) -> None:
        producer = Producer(self._kafka)
        for value in values:
            producer.produce(topic, value=value, partition=partition)
        assert producer.flush(120) == 0

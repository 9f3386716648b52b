"""``python -m connect.node --properties FILE``: one node, the thing ``icefloe node`` runs.

Rules of this file:
- The REST API answers first (503 with a health body) and everything else follows, so that a
  probe sees a node that is starting and not a refused connection.
- A node that cannot reach its broker goes on trying; one whose configuration is wrong, or whose
  place another node has taken, says so in one line and ends with status 1.
- SIGTERM and SIGINT drain: no new change, worker first (it announces what it has), coordinator
  next (it commits what it hears), all within the grace; status 0.
- Environment is read here and nowhere else in the node.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn

from connect import logs
from connect.clock import Clock, SystemClock
from connect.config.node.node_config import NodeConfig
from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka.group_membership import GroupMember
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.gateways.reach import Reach, install
from connect.jvm.java import find_java
from connect.logs import logger
from connect.metrics.process_metrics import Exposition
from connect.node.herder.api import HEALTHY, NodeHerder
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.cluster import is_placed
from connect.node.herder.deployer import Deployer
from connect.node.herder.herder import Herder
from connect.node.herder.leader import Leading, member_ids
from connect.node.herder.offset_changes import OffsetChanges
from connect.node.herder.views import Views
from connect.node.herder_api import Health, NodeInfo
from connect.node.listener import listen
from connect.node.metrics.statsd_reporter import StatsdReporter
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.auth import Users
from connect.node.rest.connections import GuardedListener
from connect.node.rest.log_levels import LEVELS, LogLevels
from connect.node.rest.transport import http_server, tls, trust_of_peers
from connect.operations.connector_clients import opened
from connect.operations.connector_operations import NODE_LIMITS, ConnectorOperations
from connect.processes.backoff import BackoffPolicy
from connect.processes.child_process import DirLock, writable_dir
from connect.processes.signals import on_signals
from connect.processes.supervisor import ChildSpec, SupervisedChild
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.status_store import StatusStore
from connect.validation.providers import Providers

COMMANDS: Mapping[str, Sequence[str]] = {
    # -P: a file named like a child in the working folder must not be run in its place
    name: (sys.executable, "-P", "-m", name)
    for name in ("worker", "coordinator")
}
RETRY_PAUSE_S = 1.0
COORDINATOR_GRACE_PART = 3

_log = logger("node")


class Node:
    """Everything of one node, wired together.

    Args:
        config: the node's configuration.
        environ: the process's environment; children inherit it.
        commands: how the children are started.
        clock: time and identities.
    """

    def __init__(
        self,
        config: NodeConfig,
        environ: Mapping[str, str],
        *,
        commands: Mapping[str, Sequence[str]] = COMMANDS,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._environ = environ
        self._stopping = threading.Event()
        self._fatal: BaseException | None = None
        install(Reach.of(config.properties))
        self._providers = Providers(config.properties, environ)
        self._state_lock = DirLock("a node")
        self._state_lock.acquire(writable_dir(config.state_dir, name="icefloe.state.dir"))
        self._listener = GuardedListener.around(listen(config))
        host, port, _ = config.advertised
        bound_port: int = self._listener.getsockname()[1]
        self.worker_id = f"{host}:{port or bound_port}"
        self.url = f"{config.listener.scheme}://{self.worker_id}"
        self._log_levels = LogLevels(self._clock)
        self._build(commands)
        self._server = self._serve_api()

    @property
    def port(self) -> int:
        """Where the REST API listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def run(self) -> int:
        """Run until stopped; return the exit status."""
        for warning in self._config.warnings:
            _log.warning(warning)
        _log.info("node starts", worker_id=self.worker_id, group_id=self._config.group_id)
        serving = threading.Thread(target=self._run_server, name="rest", daemon=True)
        serving.start()
        for child in self._children.values():
            child.start()
        starting = threading.Thread(target=self._start, name="start", daemon=True)
        starting.start()
        self._stopping.wait()
        self._drain()
        self._server.should_exit = True
        serving.join(5)
        if self._fatal is not None:
            _log.error("node ends", error=str(self._fatal))
            return 1
        _log.info("node ends")
        return 0

    def stop(self) -> None:
        """Drain and end; may be called from any thread."""
        self._stopping.set()

    # ------------------------------------------------------------ wiring

    def _build(self, commands: Mapping[str, Sequence[str]]) -> None:
        config, clock = self._config, self._clock
        node = self._providers.resolve_all(config.properties)
        settings = StoreSettings.of(config, node, self.worker_id)
        self._admin = KafkaAdmin(client_properties(node, prefix="admin."))
        self._store = ConfigStore(settings, self._admin, clock, self._changed, self._publish_level)
        self._statuses = StatusStore(settings, self._admin, clock)
        values = config.values
        leading = Leading(
            self._store,
            self._statuses,
            members=partial(member_ids, self._admin, config.group_id),
            worker_id=self.worker_id,
            url=self.url,
            clock=clock,
            shrink_delay_ms=values["scheduled.rebalance.max.delay.ms"],
        )
        self._deployer = Deployer(
            config,
            self._providers,
            self._store,
            self._admin,
            clock,
            places_for=leading.places_for,
            nodes=leading.nodes_for_layout,
            failed_tasks=self._statuses.failed_tasks,
        )
        self._children = self._make_children(commands)
        self._questions = ChildRequests(self._children, clock)
        exposition = Exposition(
            clock.now_ms,
            is_known=lambda name: self._store.get(name).config is not None,
            is_local=partial(is_placed, self._store, self.worker_id),
        )
        self._statsd = StatsdReporter.of(config, exposition)
        self._herder = Herder(
            store=self._store,
            statuses=self._statuses,
            deployer=self._deployer,
            leading=leading,
            children=self._children,
            clock=clock,
            worker_id=self.worker_id,
            url=self.url,
            version=version("icefloe"),
            policy=BackoffPolicy(
                first_ms=values["icefloe.task.restart.backoff.ms"],
                longest_ms=values["icefloe.task.restart.backoff.max.ms"],
                restarts_max=values["icefloe.task.restart.max"],
            ),
            refresh_ms=values["icefloe.metadata.refresh.ms"],
            grace_ms=config.drain_grace_ms,
            on_fatal=self._on_fatal,
            on_metrics=exposition.received,
        )
        self._api = self._make_api(exposition, settings.reader_properties)
        self._member = GroupMember(
            settings.reader_properties,
            group_id=config.group_id,
            topic=config.config_topic,
            name=self.url,
            session_timeout_ms=values["session.timeout.ms"],
            heartbeat_ms=values["heartbeat.interval.ms"],
            on_membership=self._herder.leadership.received,
            on_refused=self._not_taken,
        )

    def _make_api(self, exposition: Exposition, readers: Mapping[str, str]) -> NodeHerder:
        config, clock = self._config, self._clock
        return NodeHerder(
            herder=self._herder,
            store=self._store,
            statuses=self._statuses,
            admin=self._admin,
            exposition=exposition,
            offsets=OffsetChanges(
                self._store,
                self._admin,
                self._deployer.moves,
                group_of=self._deployer.group_of,
                settle=self._deployer.settle_offsets,
            ),
            ask=self._questions.ask,
            views=Views(
                run_of=self._herder.run_of,
                config_of=self._deployer.parsed,
                group_of=self._deployer.group_of,
                admin=self._admin,
                reader_properties=readers,
                opened=partial(opened, node=config.properties, environ=self._environ),
                exposition=exposition,
                clock=clock,
            ),
            group_id=config.group_id,
            new_request=lambda: str(clock.new_uuid()),
        )

    def _make_children(self, commands: Mapping[str, Sequence[str]]) -> dict[str, SupervisedChild]:
        config, clock = self._config, self._clock
        values = config.values
        return {
            name: SupervisedChild(
                ChildSpec(
                    name=name,
                    command=commands[name],
                    log_file=config.state_dir.resolve() / f"{name}.log",
                    properties=config.properties,
                    environ=self._environ,
                ),
                on_event=self._received,
                clock=clock,
                silence_ms_max=values["icefloe.child.silence.max.ms"],
                policy=BackoffPolicy(
                    first_ms=min(100, values["icefloe.task.restart.backoff.ms"]),
                    longest_ms=min(30_000, values["icefloe.task.restart.backoff.max.ms"]),
                ),
            )
            for name in COMMANDS
        }

    def _serve_api(self) -> uvicorn.Server:
        config = self._config
        info = NodeInfo(self.url, config.group_id)
        users = config.users_file
        app = create_app(
            self._api,
            info,
            self._log_levels,
            resolve=self._providers.resolve,
            settings=ApiSettings.of(config),
            users=Users(users, self._clock) if users else None,
            peers=trust_of_peers(config),
            connector_operations=ConnectorOperations(
                config.properties, self._environ, self._clock, NODE_LIMITS
            ),
        )
        return http_server(app, self._listener.connections, tls(config))

    # ------------------------------------------------------------ life

    def _run_server(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def _start(self) -> None:
        """Read the stores and begin to reconcile, trying again while the broker is away."""
        where = f"the broker at {self._config.bootstrap_servers} (bootstrap.servers)"
        waits = f"Worker is still starting up: it waits for {where}."
        self._api.set_health(Health("starting", waits))
        for store in (self._store, self._statuses):
            while not self._stopping.is_set():
                try:
                    store.start()
                except RetriableError as e:
                    _log.warning(waits, error=str(e))
                    self._stopping.wait(RETRY_PAUSE_S)
                except IcefloeError as e:
                    self._on_fatal(e)
                    return
                else:
                    break
        if not self._stopping.is_set():
            self._herder.start()
            if self._statsd is not None:
                self._statsd.start()
            self._member.start()
            while not self._herder.leadership.joined.wait(RETRY_PAUSE_S):
                if self._stopping.is_set():
                    return
            self._api.set_health(HEALTHY)
            _log.info("node is ready", connectors=len(self._store.names()))

    def _on_fatal(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        self._api.set_health(Health("unhealthy", str(error)))
        self._stopping.set()

    def _drain(self) -> None:
        _log.info("node drains", grace_ms=self._config.drain_grace_ms)
        grace_ms = self._config.drain_grace_ms
        self._herder.drain()
        deadline_ms = self._clock.monotonic_ms() + grace_ms
        self._member.leave()  # the next leader is chosen while what is left ends here
        self._herder.close()
        if self._statsd is not None:
            self._statsd.stop()
        self._children["worker"].shutdown(grace_ms - grace_ms // COORDINATOR_GRACE_PART)
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._children["coordinator"].shutdown(left_ms)
        self._statuses.close()
        self._store.close()
        self._admin.close()

    # ------------------------------------------------------------ small parts

    def _changed(self, name: str) -> None:
        self._providers.learn(self._store.get(name).config or {})
        self._herder.changed(name)

    def _received(self, child: str, event: Mapping[str, Any]) -> None:
        if event.get("event") == "answer":
            self._questions.answered(event)
        else:
            self._herder.received(child, event)

    def _not_taken(self, reason: str) -> None:
        group = self._config.group_id
        message = f"Kafka's group {group} (group.id) does not take this node: {reason}"
        _log.warning(message)
        if not self._herder.leadership.joined.is_set():
            self._api.set_health(Health("starting", f"Worker is still starting up: {message}"))

    def _publish_level(self, namespace: str, level: str) -> None:
        if level not in LEVELS:  # from a topic that others may write
            return
        self._log_levels.set(namespace, level)
        for child in self._children.values():
            child.send({"op": "log-level", "logger": namespace, "level": LEVELS[level]})


def run_node(properties: Path) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status.

    Raises:
        ConfigError: properties are missing or wrong, the address or the state folder is taken,
            or there is no Java for the worker.
    """
    logs.configure("node")
    find_java()  # else the worker would say so, again and again, and only in its own log
    node = Node(NodeConfig.load(properties, os.environ), dict(os.environ))
    on_signals({signal.SIGTERM, signal.SIGINT}, node.stop)
    return node.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m connect.node``."""
    parser = argparse.ArgumentParser(prog="python -m connect.node", description="Run one node.")
    parser.add_argument("--properties", type=Path, required=True, help="node properties file")
    chosen = parser.parse_args(arguments)
    try:
        return run_node(chosen.properties)
    except IcefloeError as e:
        print(f"error: {e}", file=sys.stderr)  # noqa: T201 - the last word to whoever started it
        return 1

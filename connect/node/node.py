"""One node: its parts, its REST server, and their start and stop.

Rules of this file:
- The REST API answers first (503 with a health body), so a probe of a starting node gets an answer
  and not a refused connection.
- A node that cannot reach its broker retries. If its configuration is wrong, the Kafka service
  lacks a function, or another node has taken its place, it prints one line and ends with status 1.
- SIGTERM and SIGINT drain: no new change; the worker first, which announces its files; then the
  coordinator, which commits them; all within the grace period; status 0.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import uvicorn

from connect.config.reserved_topics import node_topics
from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka.kafka_clients import require_transactions
from connect.gateways.kafka.kafka_errors import SERVICE
from connect.logs import logger
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.requests.stored_connectors import HEALTHY
from connect.node.node_parts import NodeParts, NodeSettings
from connect.node.node_requests import Health, NodeInfo, ProbeState
from connect.node.node_start import NodeStart
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.auth import Users
from connect.node.rest.config_validation import ConfigValidator, NodeFacts
from connect.node.rest.connections import Connections, GuardedListener
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.transport import http_server, tls, trust_of_peers
from connect.operations.connector_operations import NODE_LIMITS, ConnectorOperations
from connect.processes.coordinator_names import is_coordinator
from connect.redaction.secret_values import KNOWN
from connect.validation.plugins import BUILT_IN
from connect.validation.providers import Providers

RETRY_PAUSE_S = 1.0
SERVICE_TRIES = 3
HERDER_SILENCE_MS_MAX = 300_000  # a node on an overloaded machine is slow, not stuck
COORDINATOR_GRACE_PART = 3
SOLE_WORKER = "standalone"
"""Worker id of a node with its state in files, which is the same at each start."""

_log = logger("node")


class Node:
    """One node.

    Args:
        started: its configuration, socket and child processes.
    """

    def __init__(self, started: NodeStart) -> None:
        config = started.config
        self._started = started
        self._config = config
        self._clock = started.clock
        self._stopping = started.stopping
        self._fatal: BaseException | None = None
        listening = started.listening
        self._listener = None if listening is None else GuardedListener.around(listening)
        host, port, _ = config.advertised
        address = f"{host}:{port or self.port}" if config.has_rest else SOLE_WORKER
        self.worker_id = SOLE_WORKER if config.is_state_in_files else address
        self._settings = settings = NodeSettings(
            started,
            self.worker_id,
            f"{config.listener.scheme}://{address}",
            Providers(config.properties, started.environ),
            LogLevels(self._clock),
        )
        self._parts = NodeParts(settings, on_fatal=self._on_fatal, on_refused=self._on_refused)
        self._parts.receive_events(self._on_fatal)  # an error of a child ends a node that has parts
        self._server = None
        if self._listener is not None:
            self._server = self._http_server(settings, self._listener.connections)

    @property
    def port(self) -> int:
        """The port of the REST API."""
        assert self._listener is not None, "the node has no REST API"
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def parts(self) -> NodeParts:
        """The parts of the node, for the process that runs it."""
        return self._parts

    @property
    def validator(self) -> ConfigValidator:
        """Validates configurations as the REST API does, without requests to other systems."""
        settings, config = self._settings, self._config
        facts = NodeFacts(
            config.group_id,
            settings.providers.resolve,
            reserved_topics=node_topics(config.properties),
            properties=config.properties,
        )
        return ConfigValidator(self._parts.handlers.connectors, BUILT_IN, facts)

    def wait_for_stop(self, timeout_s: float) -> bool:
        """Wait until the node stops; return whether it does."""
        return self._stopping.wait(timeout_s)

    def run(self) -> int:
        """Run until stopped; return the exit status."""
        for warning in self._config.warnings:
            _log.warning(warning)
        _log.info("node starts", worker_id=self.worker_id, group_id=self._config.group_id)
        serving = threading.Thread(target=self._serve, name="rest", daemon=True)
        if self._server is not None:
            serving.start()
        starting = threading.Thread(target=self._start, name="start", daemon=True)
        starting.start()
        self._stopping.wait()
        self._drain()
        if self._server is not None:
            self._server.should_exit = True
            serving.join(5)
        if self._fatal is not None:
            code = self._fatal.code if isinstance(self._fatal, IcefloeError) else None
            _log.error("node ends", error=str(self._fatal), code=code)
            return 1
        _log.info("node ends")
        return 0

    def stop(self) -> None:
        """Drain and end; may be called from any thread."""
        self._stopping.set()

    def _http_server(self, settings: NodeSettings, connections: Connections) -> uvicorn.Server:
        config = self._config
        users = config.users_file
        app = create_app(
            self._parts.handlers,
            NodeInfo(settings.url, config.group_id),
            settings.log_levels,
            resolve=settings.providers.resolve,
            settings=ApiSettings.of(config),
            users=Users(users, self._clock) if users else None,
            peers=trust_of_peers(config),
            connector_operations=ConnectorOperations(
                config.properties,
                self._started.environ,
                self._clock,
                NODE_LIMITS,
                ConnectorConfigs(config, settings.providers, self._parts.store).reserved_topics,
            ),
            probe=self._probe,
        )
        return http_server(app, connections, tls(config))

    def _probe(self) -> ProbeState:
        """Return what probes may know; a broker that does not answer is no failure."""
        failure = None if self._fatal is None else "the node ends because of an error: see its log"
        silent_ms = self._parts.herder.silent_ms()
        if failure is None and silent_ms > HERDER_SILENCE_MS_MAX:
            failure = f"the herder has handled no event for {silent_ms // 1000} s"
        waits = []
        if self._stopping.is_set():
            waits.append("the node drains")
        elif not self._parts.herder.election.joined.is_set():
            waits.append("the node has not joined its cluster")
        waits += [
            f"the {name} process is not ready"
            for name, child in self._parts.children.items()
            if not child.is_ready
        ]
        return ProbeState(failure, tuple(waits))

    def _serve(self) -> None:
        assert self._server is not None and self._listener is not None  # noqa: PT018 - one state
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def _start(self) -> None:
        """Read the stores and begin to reconcile; retry while the broker cannot be reached."""
        parts = self._parts
        where = f"the broker at {self._config.bootstrap_servers} (bootstrap.servers)"
        waits = f"Worker is still starting up: it waits for {where}."
        connectors = parts.handlers.connectors
        connectors.health = Health("starting", waits)
        producing = self._settings.client_properties("producer.")
        check_service = partial(require_transactions, producing, self._config.group_id)
        for step in (check_service, parts.store.start, parts.statuses.start):
            tries_left = SERVICE_TRIES
            while not self._stopping.is_set():
                try:
                    step()
                except RetriableError as e:
                    # a broker that starts may not know its functions yet
                    tries_left -= e.code == SERVICE
                    if not tries_left:
                        self._on_fatal(e)
                        return
                    _log.warning(waits, error=str(e))
                    connectors.health = Health("starting", f"{waits} {KNOWN.mask(e.message)}")
                    self._stopping.wait(RETRY_PAUSE_S)
                except IcefloeError as e:
                    self._on_fatal(e)
                    return
                else:
                    break
        if not self._stopping.is_set():
            parts.herder.start()
            parts.start_reporters()
            parts.member.start()
            while not parts.herder.election.joined.wait(RETRY_PAUSE_S):
                if self._stopping.is_set():
                    return
            connectors.health = HEALTHY
            _log.info("node is ready", connectors=len(parts.store.names()))

    def _on_fatal(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        self._parts.handlers.connectors.health = Health("unhealthy", str(error))
        self._stopping.set()

    def _on_refused(self, reason: str) -> None:
        group = self._config.group_id
        message = f"Kafka's group {group} (group.id) does not accept this node: {reason}"
        _log.warning(message)
        if not self._parts.herder.election.joined.is_set():
            health = Health("starting", f"Worker is still starting up: {message}")
            self._parts.handlers.connectors.health = health

    def _drain(self) -> None:
        parts = self._parts
        grace_ms = self._config.drain_grace_ms
        _log.info("node drains", grace_ms=grace_ms)
        parts.herder.drain()
        deadline_ms = self._clock.monotonic_ms() + grace_ms
        parts.member.leave()  # the group elects the next leader while the children still drain
        parts.herder.close()
        parts.stop_reporters()
        parts.children["worker"].shutdown(grace_ms - grace_ms // COORDINATOR_GRACE_PART)
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        coordinators = [child for name, child in parts.children.items() if is_coordinator(name)]
        with ThreadPoolExecutor(len(coordinators)) as pool:
            list(pool.map(lambda child: child.shutdown(left_ms), coordinators))
        parts.close_exports()
        parts.statuses.close()
        parts.store.close()
        parts.admin.close()

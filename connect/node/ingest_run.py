"""Runs the job of ``icefloe ingest`` in a standalone node.

Rules of this file:
- One process per app id. The connector of an app id keeps its topic and its table: its source
  offsets would be wrong for others.
- A table that kafka-delta-ingest has written is continued at the offsets in its log.
- ``--ends_at_latest_offsets`` begins a new run each time; a run that was ended early is continued.
- While kafka-delta-ingest runs, its rows and offsets would move after they were read: a start is
  refused. Its group shows that, and offsets that moved between two reads of the table.
- kafka-delta-ingest stores the last offset that is in the table as version of the transaction
  identifier ``<app_id>-<partition>``, in the commit of the rows.

Source:
    kafka-delta-ingest (c6d42de) ``src/delta_helpers.rs``: ``build_actions``, ``create_txn_action``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping

from connect.config.node.node_config import NodeConfig
from connect.config.node.node_environment import from_environment
from connect.config.table_formats import DELTA
from connect.errors import CommitRefused, ConfigError, ExitStatus
from connect.gateways.catalog.log_stores import open_delta_tables
from connect.gateways.delta.delta_model import DeltaStore
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_properties import client_properties
from connect.logs import logger
from connect.node.node_start import configure_logs, run_standalone
from connect.node.standalone_connectors import StandaloneConnector
from connect.operations.connector_clients import ConnectorCluster, opened_cluster
from connect.operations.ingest.app_lock import AppLock
from connect.operations.ingest.ingest_options import IngestJob
from connect.operations.ingest.translation import with_start_offsets
from connect.protocol.control_topic import CONTROL_TOPIC_CONFIG
from connect.state.file_log import CONFIG_FILE, read_state
from connect.validation.providers import Providers

_log = logger("ingest")
_FIXED = ("topics", "icefloe.format", "icefloe.delta.location", "iceberg.tables")


def run_ingest(job: IngestJob, environ: Mapping[str, str]) -> int:
    """Run a job until it is completed or a signal; return the exit status.

    Args:
        job: the connector and its node.
        environ: environment variables; they replace the node's properties.

    Raises:
        IcefloeError: the job cannot be run. ConfigError: ``app_id_in_use``, ``app_id_other_job``,
            ``daemon_running``.
    """
    config = NodeConfig.from_properties({**job.node, **from_environment(environ)})
    configure_logs(config)
    refuse_other_job(job.connector, _stored_connector(config, job.name))
    node = config.properties
    consumer_properties = client_properties(
        Providers(node, environ).resolve_all(node), prefix="consumer."
    )
    with opened_cluster(job.connector, node, environ) as cluster:
        control_topic = cluster.config.control_topic
        if control_topic not in cluster.admin.topics():
            cluster.admin.ensure_topic(control_topic, 1, CONTROL_TOPIC_CONFIG)
        offsets = DaemonOffsets(job, cluster)
    lock = AppLock(consumer_properties, app_id=job.name, topic=control_topic, on_lost=_stop)
    lock.acquire()
    try:
        status = run_standalone(
            config, (StandaloneConnector(job.name, offsets.connector()),), is_new_run=True
        )
    finally:
        lock.release()
    if lock.is_lost:
        raise ConfigError(
            f"another process has taken over the app id {job.name!r} while this one did not "
            "answer, and continues the job. Start only one process with this app id",
            code="app_id_in_use",
        )
    return ExitStatus.DONE if status == 0 else status


def refuse_other_job(connector: Mapping[str, str], stored: Mapping[str, str] | None) -> None:
    """Check that an app id keeps its topic and its table.

    Args:
        connector: of the command line.
        stored: the last one with this app id in the state folder; None if there is none.

    Raises:
        ConfigError: ``app_id_other_job``.
    """
    for key in _FIXED:
        stored_value, value = (stored or {}).get(key), connector.get(key)
        if stored is not None and stored_value != value:
            raise ConfigError(
                f"the app id {connector['name']!r} belongs to {key}={stored_value}, not to "
                f"{value}: its source offsets are stored under this name. Set another --app_id",
                code="app_id_other_job",
            )


def _stored_connector(config: NodeConfig, name: str) -> Mapping[str, str] | None:
    return read_state(config.state_dir / CONFIG_FILE).get(name).config


class DaemonOffsets:
    """The offsets that kafka-delta-ingest has left in the table of a job.

    Args:
        job: the job; its table may be of another format, which has none.
        cluster: of the connector.

    Raises:
        ConfigError: ``daemon_running``: kafka-delta-ingest reads the topic.
    """

    def __init__(self, job: IngestJob, cluster: ConnectorCluster) -> None:
        self._job = job
        self._topic = job.connector["topics"]
        self._partitions = range(cluster.admin.topics().get(self._topic, 0))
        config = cluster.config
        self._is_delta = config.table_format == DELTA
        if not self._is_delta:
            return
        if job.daemon_group is not None:
            refuse_running_daemon(cluster.admin, job.daemon_group, self._topic)
        self._store = open_delta_tables(
            config.catalog_properties, config.locations, lambda *_: None
        )
        self._before = self._read()

    def connector(self) -> dict[str, str]:
        """Return the connector that continues at these offsets.

        Raises:
            ConfigError: ``daemon_running``: the offsets moved since the last read.
        """
        job = self._job
        if not self._is_delta:
            return dict(job.connector)
        next_offsets = self._read()
        if job.daemon_group is not None:
            refuse_moved_offsets(self._before, next_offsets)
        if next_offsets:
            _log.info(
                "continues at offsets of kafka-delta-ingest",
                table=job.table,
                next_offsets=next_offsets,
            )
        return with_start_offsets(job.connector, next_offsets)

    def _read(self) -> dict[int, int]:
        job = self._job
        return continued_offsets(self._store, job.table, job.name, self._partitions)


def _stop() -> None:
    """Let the node drain and end."""
    os.kill(os.getpid(), signal.SIGTERM)


def continued_offsets(
    store: DeltaStore, table: str, app_id: str, partitions: Collection[int]
) -> dict[int, int]:
    """Return the next offset of each partition from which kafka-delta-ingest has rows in a table.

    Args:
        store: of the table.
        table: ``namespace.table``; it may not exist.
        app_id: of the job.
        partitions: of the topic.

    Raises:
        CommitRefused, RetriableError: as ``DeltaTables.load``, but for a table that does not exist.
    """
    try:
        version = store.load(tuple(table.split(".")))
    except CommitRefused as e:
        if e.code == "table_missing":
            return {}
        raise
    last = {p: version.transaction(f"{app_id}-{p}") for p in partitions}
    return {p: offset + 1 for p, offset in sorted(last.items()) if offset is not None}


def refuse_running_daemon(admin: KafkaAdmin, group: str, topic: str) -> None:
    """Check that no process of kafka-delta-ingest reads the topic.

    Args:
        admin: of the cluster.
        group: consumer group of kafka-delta-ingest.
        topic: of the job.

    Raises:
        ConfigError: ``daemon_running``.
        RetriableError: the broker is unavailable.
    """
    try:
        readers = admin.readers(group, topic)
    except ConfigError as error:  # the login may not describe the group
        _log.warning("cannot check whether kafka-delta-ingest still runs", error=str(error))
        return
    if readers:
        raise _running(f"members of the consumer group {group!r} read it: {', '.join(readers)}")


def refuse_moved_offsets(before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Check that the offsets in the table did not move between two reads of it.

    Raises:
        ConfigError: ``daemon_running``.
    """
    if moved := sorted(p for p in after if before.get(p) != after[p]):
        partitions = ", ".join(map(str, moved))
        raise _running(f"its offsets in the table moved meanwhile (partitions {partitions})")


def _running(evidence: str) -> ConfigError:
    return ConfigError(
        f"kafka-delta-ingest still runs for this topic: {evidence}. Every row would be in the "
        "table twice. Stop its processes and start again; if they belong to another table, set "
        "--ignore_running_daemon",
        code="daemon_running",
    )

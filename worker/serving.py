"""The main function of a worker process: one Spark session and the tasks of many connectors."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from connect.clock import SystemClock
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.logs import ROOT, set_level
from connect.metrics import process_metrics
from connect.processes.child_main import Serving, begin
from connect.processes.ipc import Channel
from connect.state.connector_reader import connector_reader
from worker.host import TaskHost
from worker.spark.jvm_metrics import publish_jvm
from worker.spark.session import Session
from worker.spark.session_opening import SessionOpening, start_daemon
from worker.spark.warm_up import load_source, warm_up
from worker.task.batches.batch_runner import make_runner
from worker.task.task_context import TaskContext

METRICS_INTERVAL_S = 1
JVM_METRICS_TURNS = 10
EXIT_SPARK_DIED = 70
WARM_UP_GRACE_PART = 4  # a part of the warm-up takes 2 s, on a slow machine more

log = structlog.get_logger("worker")


def serve(channel: Channel | None, opening: SessionOpening | None) -> int:
    """Serve the node until its stop command, its end, or SIGTERM; return the exit status.

    Args:
        channel: the connection to the node; None if no node started the process.
        opening: the session that is already being opened; None opens it now.

    Raises:
        ConfigError: no node started the process, or as ``open_session``.
        RetriableError: as ``open_session``.
    """
    serving = begin("worker", channel)
    if serving is None:
        if opening is not None:
            opening.session.result().close()
        return 0
    child, node, providers = serving.child, serving.node, serving.providers
    if opening is None:
        opening = SessionOpening(providers.resolve_all(node.spark_properties), node.state_dir)
    log.info("waiting", waits_for="the Spark session", master=node.spark_properties["spark.master"])
    admins = SharedAdmins()
    context = TaskContext(
        node=providers.resolve_all(node.properties),
        node_group_id=node.group_id,
        stored=connector_reader(node, admins),
        admins=admins,
        session=opening.session,
        clock=SystemClock(),
        runner=make_runner,
        report=lambda _state, _error: None,
        on_spans=child.spans if node.values["icefloe.otel.enabled"] else None,
    )
    host = TaskHost(child, node, providers, context)
    process_metrics.start_reporting(child.channel)
    beginning = threading.Thread(
        target=_begin_with_spark, args=(opening, host, serving), daemon=True
    )
    beginning.start()
    child.takes_commands()
    host.units.start_inventory()
    for command in serving.commands:
        host.handle(command)
    if not host.shutdown(node.drain_grace_ms):
        log.warning("tasks did not end within the grace period", grace_ms=node.drain_grace_ms)
    session = opening.session.result()
    beginning.join(node.drain_grace_ms / 1000 / WARM_UP_GRACE_PART)
    if beginning.is_alive():
        _silence(session)
    session.close()
    return 0


def _begin_with_spark(opening: SessionOpening, host: TaskHost, serving: Serving) -> None:
    """Report the worker as ready when Spark runs; end the commands if it does not start.

    Tasks that the node has sent meanwhile do everything that needs no session. Returns when the
    commands have ended and no thread of it uses Spark.
    """
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    if opening.session.exception() is not None:  # the main thread raises it after the commands
        serving.child.channel.stop_receiving()
        return
    session = opening.session.result()
    log.info("Spark session is ready", waited_ms=clock.monotonic_ms() - started_ms)
    stopping = serving.stopping
    threading.Thread(target=_watch, args=(session, stopping), daemon=True).start()
    serving.child.ready()
    if not has_sql(session) and not stopping.is_set():
        os._exit(EXIT_SPARK_DIED)
    daemon = (lambda: start_daemon(session.context),)
    source = (lambda: load_source(session.spark), lambda: warm_up(session))
    threads = [
        threading.Thread(target=_warm_up, args=(parts, stopping), daemon=True)
        for parts in (daemon, source)
    ]
    for thread in threads:
        thread.start()
    _publish_metrics(host, session, stopping)
    for thread in threads:
        thread.join()


def has_sql(session: Session) -> bool:
    """Wait for Spark SQL; return whether it has started. If not, the node restarts the worker.

    Tasks that start read few records meanwhile.
    """
    error = session.sql.exception()
    if error is not None:
        log.error("Spark SQL has not started, the worker ends", error=str(error))
    return error is None


def _warm_up(parts: Sequence[Callable[[], None]], stopping: threading.Event) -> None:
    """Warm up Spark while the tasks start, so that their first batches are fast.

    A part that has begun is not cancelled: Spark would log the stack traces of its tasks.
    """
    for part in parts:
        if stopping.is_set():
            return
        try:
            part()
        except (PySparkException, Py4JError, OSError) as e:
            if not stopping.is_set():
                log.warning("warm-up failed, the first batch will take longer", error=str(e))
            return


def _silence(session: Session) -> None:
    """Log nothing of threads that still use Spark when it stops: each of their calls fails."""
    with contextlib.suppress(Py4JError, OSError):  # Spark has ended
        session.context.setLogLevel("OFF")
    set_level(ROOT, logging.ERROR)
    threading.excepthook = lambda _: None


def _watch(session: Session, stopping: threading.Event) -> None:
    """End the process when Spark's JVM ends: no task can run, and the node restarts the worker."""
    session.wait_for_jvm()
    if not stopping.is_set():
        log.error("the JVM of Spark ended, the worker ends as well")
        os._exit(EXIT_SPARK_DIED)


def _publish_metrics(host: TaskHost, session: Session, stopping: threading.Event) -> None:
    for turn in itertools.count():
        if stopping.wait(METRICS_INTERVAL_S):
            return
        host.publish_metrics()
        if turn % JVM_METRICS_TURNS == 0:
            publish_jvm(session)

"""Opens the Spark session of a worker process, and closes it.

Rules of this file:
- The session's configuration is never on a command line: it may contain secrets (object store keys
  in ``spark.hadoop.*``). It is passed in a file that only this user can read. The file is removed
  once the session is open.
- The session serves many tasks. Settings of one connector are set per query.
- Temporary files of Spark, its JVM and the Python workers are in private folders of the session.
  A killed process leaves its folders, and the next worker removes them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect.config.spark_master import MASTER, is_local
from connect.failpoints import WORKER_PID_VARIABLE
from connect.jvm.jars import resolve
from connect.jvm.java import find_java
from worker.spark.batch_sizing import LARGE_BYTES, SMALL_ROWS
from worker.spark.class_archive import archive_options
from worker.spark.jvm import SparkJvm, gateway_of, spark_context_of
from worker.spark.large_functions import note_functions
from worker.spark.session_folder import SessionFolder
from worker.spark.session_settings import ARROW_BYTES, ARROW_ROWS, LOG4J, core_count, settings
from worker.spark.source_options import LARGE_RECORD_TEXT

SOCKET_FOLDER_BYTES_MAX = 60  # the path of a socket has at most 107, its name 42
_SYSTEM = Path("/tmp")  # noqa: S108 - Java's default; a private folder is made in it
_OF_ROWS = "icefloe.of.rows"  # marks this session and the sessions that its queries derive
# these loggers of pyspark log errors of expressions together with values
_VALUE_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_QUERY_LISTENERS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"


@dataclass(frozen=True, slots=True)
class SqlSessions:
    """Sessions of Spark SQL, of the same Spark.

    Attributes:
        spark: the session.
        of_rows: for small records. Its Arrow batches are bounded in rows only: reading the bytes of
            a batch after each row takes a tenth of all CPU.
        of_blocks: for blocks of records. A row is an Arrow batch.
    """

    spark: SparkSession
    of_rows: SparkSession
    of_blocks: SparkSession


@dataclass(frozen=True, slots=True)
class Session:
    """A running Spark and its folders.

    Attributes:
        context: runs jobs. Spark SQL may still be starting; its sessions wait for it.
        sql: sessions of Spark SQL.
        folder: private folder for checkpoints and spill files, removed by ``close``.
        folders: all private folders, locked.
        jvm: of the context.
        driver_classes: Java classes of this project that only the driver uses, by name.
        accumulators: those that no query uses. PySpark keeps each until the process ends, so
            another query uses it again.
    """

    context: SparkContext
    sql: Future[SqlSessions]
    folder: Path
    folders: tuple[SessionFolder, ...]
    jvm: SparkJvm
    driver_classes: dict[str, Any] = field(default_factory=dict)
    accumulators: list[Any] = field(default_factory=list)

    @property
    def spark(self) -> SparkSession:
        """The session of ``SqlSessions``."""
        return self.sql.result().spark

    @property
    def of_rows(self) -> SparkSession:
        """The session of ``SqlSessions``."""
        return self.sql.result().of_rows

    @property
    def of_blocks(self) -> SparkSession:
        """The session of ``SqlSessions``."""
        return self.sql.result().of_blocks

    @property
    def cores(self) -> int:
        """Number of Spark tasks that run in parallel now; executors of a cluster come and go."""
        return max(int(self.context.defaultParallelism), 1)

    @property
    def cluster(self) -> str | None:
        """The master of the cluster that runs the tasks; None if this process runs them."""
        master = self.context.master
        return None if is_local(master) else master

    @property
    def executor_count(self) -> int:
        """Number of executors of the cluster that can run tasks now; 0 without a cluster."""
        if self.cluster is None:
            return 0
        status = spark_context_of(self.context).getExecutorMemoryStatus()
        return int(status.size()) - 1  # the driver is listed as well

    def choose_pool(self, pool: str) -> None:
        """Run the next jobs of this thread in a FAIR scheduler pool."""
        self.context.setLocalProperty("spark.scheduler.pool", pool)

    def release_callbacks(self) -> None:
        """Close the connections that ended streaming queries leave open.

        The thread of each query opens a connection to call into Python. Only a clean-up of py4j
        closes connections without a call since the last clean-up.
        """
        release_callbacks(self.spark)

    def forget_listeners(self) -> None:
        """Remove the listeners of queries with state, which Spark would call for ever.

        Each such query adds one that passes events of queries on, to no listener of the worker.
        """
        jvm = self.jvm.gateway.jvm
        bus = spark_context_of(self.context).listenerBus()
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(_QUERY_LISTENERS))
        listeners = bus.findListenersByClass(kind)
        for index in range(listeners.size()):
            bus.removeListener(listeners.apply(index))

    def wait_for_jvm(self) -> None:
        """Block until the JVM has ended, for any reason."""
        self.jvm.wait()

    def close(self, end_timeout_s: float = 30.0) -> None:
        """Stop Spark, wait up to ``end_timeout_s`` for the end of its JVM, remove the folders."""
        (self.spark if self.sql.exception() is None else self.context).stop()
        self.jvm.shutdown(end_timeout_s)
        for folder in self.folders:
            folder.remove()


_cleaning = threading.Lock()


def release_callbacks(spark: SparkSession) -> None:
    """Do the same as ``Session.release_callbacks``, for a Spark session."""
    with _cleaning:
        gateway_of(spark.sparkContext).java_gateway_server.getCallbackClient().periodicCleanup()


def open_session(
    node: Mapping[str, str],
    *,
    folder: Path | None = None,
    java_options: Sequence[str] | None = None,
) -> Session:
    """Start Spark; Spark SQL continues to start in a thread, which takes as long again.

    Args:
        node: node properties.
        folder: parent of the session's private folder; the system's temporary folder if None.
            Folders of killed workers in it are removed.
        java_options: additional options of the JVM; those of the class archive if None.

    Raises:
        ConfigError: no usable Java, jars with wrong checksums, or no secret for a remote master.
        RetriableError: jars could not be downloaded.
    """
    for name in _VALUE_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    folders = _private_folders(folder)
    home, scratch = folders[0].path, folders[-1].path / "tmp"
    scratch.mkdir()
    cores = core_count()
    os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    os.environ[WORKER_PID_VARIABLE] = str(os.getpid())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # executors on other machines may have another one, for example in an archive
    os.environ["PYSPARK_PYTHON"] = node.get("spark.pyspark.python", sys.executable)
    if is_local(node.get(MASTER)):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    more = archive_options() if java_options is None else java_options
    jars = resolve("spark-kafka")
    conf = settings(node, folder=home, scratch=scratch, jars=jars, cores=cores, java_options=more)
    (home / "log4j2.properties").write_text(LOG4J.format(level="warn"))
    properties = home / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{k} {_escaped(v)}\n" for k, v in conf.items()))
    variables = {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(properties))} pyspark-shell",
        "TMPDIR": str(scratch),  # of the Python workers
    }
    try:
        with _environment(variables):
            jvm = SparkJvm()
            context = SparkContext(gateway=jvm.gateway)
            note_functions(context)
    finally:
        properties.unlink()
    starting = ThreadPoolExecutor(1, thread_name_prefix="spark-sql")
    sql = starting.submit(_sql_sessions, node)
    starting.shutdown(wait=False)
    return Session(context, sql, home, folders, jvm)


def _sql_sessions(node: Mapping[str, str]) -> SqlSessions:
    """Start Spark SQL, which loads thousands of classes."""
    spark = SparkSession.builder.getOrCreate()
    return SqlSessions(spark, _of_rows(spark, node), _of_blocks(spark))


def _of_rows(spark: SparkSession, node: Mapping[str, str]) -> SparkSession:
    if ARROW_BYTES in node:
        return spark  # the operator chose the bound
    session = spark.newSession()
    session.conf.set(ARROW_BYTES, str(2**31 - 1))  # at this bound Spark does not read the size
    session.conf.set(_OF_ROWS, "true")
    session.conf.set(ARROW_ROWS, node.get(ARROW_ROWS, str(SMALL_ROWS)))
    return session


def _of_blocks(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(ARROW_BYTES, str(2**31 - 1))  # at this bound Spark does not read the size
    session.conf.set(ARROW_ROWS, "1")
    return session


def is_of_rows(rows: DataFrame) -> bool:
    """Return whether the Arrow batches of these rows are bounded in rows only."""
    return bool(rows.sparkSession.conf.get(_OF_ROWS, "false") == "true")


def held_small(column: Column, size: Column, ddl: str) -> Column:
    """Return the column with a check: a large value ends the read (``LARGE_RECORD``)."""
    refusal = F.raise_error(F.lit(LARGE_RECORD_TEXT)).cast(ddl)
    return F.when(size > LARGE_BYTES, refusal).otherwise(column)


def _private_folders(parent: Path | None) -> tuple[SessionFolder, ...]:
    """Make the session's folder, and one for sockets if its path is too long for them."""
    home = SessionFolder.make(parent)
    if len(os.fsencode(home.path / "tmp")) <= SOCKET_FOLDER_BYTES_MAX:
        return (home,)
    return home, SessionFolder.make(_SYSTEM)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")

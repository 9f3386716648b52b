"""Opens the Spark session of a worker process, with settings that were chosen by measurement.

Rules of this file:
- The session's configuration is never on a command line: it may contain secrets (object store keys
  in ``spark.hadoop.*``). It is passed in a file that only this user can read. The file is removed
  once the session is open.
- The session serves many tasks. Settings of one connector are set per query.
- Temporary files of Spark, its JVM and the Python workers are in private folders of the session.
  A killed process leaves its folders, and the next worker removes them.

Source:
    Spark 4.1 configuration; the measurements are in docs/decisions/0003.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect.config.spark_master import MASTER, is_local
from connect.errors import ConfigError
from connect.failpoints import WORKER_PID_VARIABLE
from connect.jvm.jars import resolve
from connect.jvm.java import find_java
from worker.spark.batch_sizing import LARGE_BYTES, SMALL_ROWS
from worker.spark.class_archive import archive_options
from worker.spark.large_functions import note_functions
from worker.spark.session_folder import SessionFolder
from worker.spark.source_options import LARGE_RECORD_TEXT

TASK_FAILURES_MAX = 3
_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*\])?")
SOCKET_FOLDER_BYTES_MAX = 60  # the path of a socket has at most 107, its name 42
_SYSTEM = Path("/tmp")  # noqa: S108 - Java's default; a private folder is made in it
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OF_ROWS = "icefloe.of.rows"  # marks this session and the sessions that its queries derive
REDACTED = r"(?i)secret|password|token|access[.]?key|credential|jaas|sasl|ssl[.]key"
# these loggers of pyspark log errors of expressions together with values
_VALUE_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"  # extraJavaOptions of a node are appended
# the XML parsers of Java must not fetch external entities
_NO_XML = [f"-Djavax.xml.accessExternal{kind}=" for kind in ("DTD", "Schema", "Stylesheet")]
# file systems that no session needs; a node can enable one again
_CLOSED_SCHEMES = ("http", "https", "ftp", "sftp", "har", "webhdfs", "swebhdfs", "viewfs")
_NO_FILE_SYSTEM = "closed.by.icefloe"
_CLASS_PATH = "spark.driver.extraClassPath"
# a node cannot change these: queries of connectors must not read variables or files
_OF_QUERIES = {"spark.sql.variable.substitute": "false", "spark.sql.runSQLOnFiles": "false"}
_PYTHON = {
    "spark.python.daemon.module": "worker.spark.daemon",
    # Spark SQL sets it. With it, a job without SQL uses the same daemon
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.python.unix.domain.socket.enabled": "true",
}
_KAFKA_SOURCE = {
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    # without kafka: Spark's first interface of sources makes a Java object of each row
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a property
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_QUERY_LISTENERS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"
_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p jvm %c{{1}} %enc{{%m}}{{CRLF}}%n
# a connector task reports its failed Spark tasks, with coordinates
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
# it warns for every streaming query about settings that Icefloe chose
logger.queries.name = org.apache.spark.sql.execution.streaming
logger.queries.level = error
# native Hadoop is not used, and the local folder is chosen by Icefloe
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
# pools are created with connectors, no file declares them
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.source.name = org.apache.spark.sql.kafka010
logger.source.level = error
"""


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
        driver_classes: Java classes of this project that only the driver uses, by name.
        accumulators: those that no query uses. PySpark keeps each until the process ends, so
            another query uses it again.
    """

    context: SparkContext
    sql: Future[SqlSessions]
    folder: Path
    folders: tuple[SessionFolder, ...]
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
        status = self.context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - no public way
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
        jvm: Any = self.context._jvm  # noqa: SLF001 - no public way
        bus = self.context._jsc.sc().listenerBus()  # noqa: SLF001 - the same
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(_QUERY_LISTENERS))
        listeners = bus.findListenersByClass(kind)
        for index in range(listeners.size()):
            bus.removeListener(listeners.apply(index))

    def wait_for_jvm(self) -> None:
        """Block until the JVM has ended, for any reason."""
        gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to the JVM
        if gateway is not None:
            gateway.proc.wait()

    def close(self, end_timeout_s: float = 30.0) -> None:
        """Stop Spark, wait up to ``end_timeout_s`` for the end of its JVM, remove the folders."""
        gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to the JVM
        (self.spark if self.sql.exception() is None else self.context).stop()
        if gateway is not None:
            with contextlib.suppress(Py4JError, OSError):
                gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends when its standard input does
            gateway.proc.wait(timeout=end_timeout_s)
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        for folder in self.folders:
            folder.remove()


_cleaning = threading.Lock()


def release_callbacks(spark: SparkSession) -> None:
    """Do the same as ``Session.release_callbacks``, for a Spark session."""
    client = spark.sparkContext._gateway._gateway_client  # noqa: SLF001 - no public way
    with _cleaning:
        JavaObject("GATEWAY_SERVER", client).getCallbackClient().periodicCleanup()


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def with_retries(master: str) -> str:
    """Return the master with several attempts per task, where it is a local one.

    By default a local master makes one attempt, so one lost Python worker fails the whole batch.
    """
    match = _LOCAL.fullmatch(master.strip())
    return f"local[{match[1] or 1},{TASK_FAILURES_MAX}]" if match else master


def settings(
    node: Mapping[str, str],
    *,
    folder: Path,
    scratch: Path,
    jars: list[Path],
    cores: int,
    java_options: Sequence[str] = (),
) -> dict[str, str]:
    """Return the session's configuration: defaults, overridden by the node's ``spark.*``.

    Args:
        node: node properties; only those that start with ``spark.`` are used.
        folder: private folder of the session.
        scratch: folder for temporary files and sockets of the JVM.
        jars: Spark's Kafka source and its dependencies.
        cores: number of cores of this machine to use.
        java_options: additional options of the JVM.
    """
    own = {
        "spark.master": f"local[{cores},{TASK_FAILURES_MAX}]",
        "spark.app.name": "icefloe",
        "spark.driver.memory": "1536m",
        # the results of all tasks of a batch are in memory twice for a moment
        "spark.driver.maxResultSize": "256m",
        "spark.driver.extraJavaOptions": " ".join(_java_options(folder)),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.eventLog.enabled": "false",
        "spark.log.level": "WARN",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # bytes bound an Arrow batch of large records, rows bound one of small records; see
        # worker.task.source.source_rows.source_column
        ARROW_BYTES: str(16 * 2**20),
        ARROW_ROWS: "10000",
        # it evaluates expressions outside of what catches their errors, see worker.sql.sql_batches
        "spark.sql.subexpressionElimination.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        **_KAFKA_SOURCE,
        **_PYTHON,
        **{f"spark.hadoop.fs.{scheme}.impl": _NO_FILE_SYSTEM for scheme in _CLOSED_SCHEMES},
    }
    overrides = {k: v for k, v in node.items() if k.startswith("spark.")}
    if is_local(overrides.get(MASTER)):  # executors on other machines must reach the driver
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if "spark.master" in overrides:
        overrides["spark.master"] = with_retries(overrides["spark.master"])
    secured = _authentication(overrides)
    class_path = _class_path(overrides, jars)
    default = " ".join(
        [
            f'"-Djava.io.tmpdir={scratch}"',
            *_NO_XML,
            *java_options,
            overrides.get(_DEFAULT_OPTIONS, ""),
        ]
    )
    return {
        **own,
        **secured,
        **overrides,
        **class_path,
        **_OF_QUERIES,
        _DEFAULT_OPTIONS: default.strip(),
    }


# A start of Spark calls many methods a few thousand times. With Java's own thresholds C2 compiles
# them, which takes a fifth of the CPU. The methods of a record reach these limits in a second.
_LATE_C2 = (
    "-XX:Tier3DelayOn=0",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def _java_options(folder: Path) -> list[str]:
    return [
        "-XX:+UseSerialGC",  # 230 MB less than G1 at the same throughput
        *_LATE_C2,
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.net.preferIPv4Stack=true",
        f'"-Dlog4j2.configurationFile={folder / "log4j2.properties"}"',
    ]


def _class_path(overrides: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """Return the properties with which the JVMs of the session find the Kafka source.

    A local session has the jars on the class path of its only JVM. With ``spark.jars`` Spark would
    copy them at each start, and a class archive could not contain their classes.
    """
    if is_local(overrides.get(MASTER)):
        own = [overrides[_CLASS_PATH]] if overrides.get(_CLASS_PATH) else []
        return {_CLASS_PATH: os.pathsep.join([*own, *map(str, jars)])} if jars else {}
    return {} if "spark.jars" in overrides else {"spark.jars": ",".join(map(str, jars))}


def _authentication(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return properties that authenticate all connections, and encrypt those between machines.

    Raises:
        ConfigError: ``spark_secret_missing``: the master does not generate a secret.
    """
    master = overrides.get(MASTER, "local")
    if overrides.get("spark.authenticate", "true").strip().lower() != "true":
        return {}
    if is_local(master):
        return {"spark.authenticate": "true"}
    generates_secret = master.startswith(("yarn", "k8s://"))
    if not generates_secret and not any(key.startswith(_SECRET) for key in overrides):
        raise ConfigError(
            f"spark.master is {master}, which generates no secret for spark.authenticate: set "
            f"{_SECRET} on the node and on the master, or spark.authenticate=false",
            code="spark_secret_missing",
        )
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


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
    (home / "log4j2.properties").write_text(_LOG4J.format(level="warn"))
    properties = home / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{k} {_escaped(v)}\n" for k, v in conf.items()))
    variables = {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(properties))} pyspark-shell",
        "TMPDIR": str(scratch),  # of the Python workers
    }
    try:
        with _environment(variables):
            context = SparkContext.getOrCreate()
            note_functions(context)
    finally:
        properties.unlink()
    starting = ThreadPoolExecutor(1, thread_name_prefix="spark-sql")
    sql = starting.submit(_sql_sessions, node)
    starting.shutdown(wait=False)
    return Session(context, sql, home, folders)


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

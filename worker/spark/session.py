"""The one Spark session of a worker process, with the settings that were measured to matter.

Rules of this file:
- Nothing of the session's configuration goes onto a command line: it may hold secrets (object
  store keys in ``spark.hadoop.*``). It travels in a file that only this user can read and that is
  removed once the session stands.
- The session serves many tasks; what belongs to one connector is set per query, never here.
- What Spark, its JVM and the Python workers write for a while lies in folders of the session's own:
  a killed process leaves it behind, and the next worker removes it.

Source:
    Spark 4.1 configuration; the figures behind each choice are in docs/decisions/0003.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect.errors import ConfigError
from connect.failpoints import WORKER_PID_VARIABLE
from connect.jvm.jars import resolve
from connect.jvm.java import find_java
from worker.spark.batch_sizing import LARGE_BYTES, SMALL_ROWS
from worker.spark.class_archive import archive_options
from worker.spark.session_folder import SessionFolder
from worker.spark.source_options import LARGE_RECORD_TEXT

TASK_FAILURES_MAX = 3
_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*\])?")
SOCKET_FOLDER_BYTES_MAX = 60  # a socket's path has 107 at most, its name 42
_SYSTEM = Path("/tmp")  # noqa: S108 - where Java has them; a private folder is made in it
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OF_ROWS = "icefloe.of.rows"  # marks that session, and those that its queries make of it
REDACTED = r"(?i)secret|password|token|access[.]?key|credential|jaas|sasl|ssl[.]key"
# pyspark logs what it raises out of expressions, with the values
_TALKERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"  # extraJavaOptions of a node come behind
# nothing that XML names is fetched by Java's own parsers
_NO_XML = [f"-Djavax.xml.accessExternal{kind}=" for kind in ("DTD", "Schema", "Stylesheet")]
# addresses and archives that no session reads; a node may open one again
_CLOSED_SCHEMES = ("http", "https", "ftp", "sftp", "har", "webhdfs", "swebhdfs", "viewfs")
_NO_FILE_SYSTEM = "closed.by.icefloe"
_CLASS_PATH = "spark.driver.extraClassPath"
# whatever the node says: queries of connectors read no variables and no files
_OF_QUERIES = {"spark.sql.variable.substitute": "false", "spark.sql.runSQLOnFiles": "false"}
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a property
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p jvm %c{{1}} %enc{{%m}}{{CRLF}}%n
# a failed task is told by the task itself, with its coordinates
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
# it warns of every streaming query about settings that we chose
logger.queries.name = org.apache.spark.sql.execution.streaming
logger.queries.level = error
# native Hadoop and the local folder's configuration are no news
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
# pools are made as connectors come, no file declares them
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.source.name = org.apache.spark.sql.kafka010
logger.source.level = error
"""


@dataclass(frozen=True, slots=True)
class Session:
    """A running session and what belongs to it.

    Attributes:
        spark: the session.
        of_rows: the same Spark, with Arrow batches that are bounded in rows alone, for records
            known to be small: asking for a batch's bytes after each row takes a tenth of all CPU.
        folder: private folder for checkpoints and spill, removed by ``close``.
        cores: how many tasks run side by side.
        folders: all private folders, locked.
    """

    spark: SparkSession
    of_rows: SparkSession
    folder: Path
    cores: int
    folders: tuple[SessionFolder, ...]

    def release_callbacks(self) -> None:
        """Free the connection that every ended streaming query leaves behind.

        Each query's thread opens a connection of its own to call into Python; py4j closes
        connections that no call has used since the last clean-up, and nothing else does.
        """
        release_callbacks(self.spark)

    def wait_for_jvm(self) -> None:
        """Block until the JVM has ended, for whatever reason."""
        gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to the JVM
        if gateway is not None:
            gateway.proc.wait()

    def close(self, end_timeout_s: float = 30.0) -> None:
        """Stop Spark and its JVM, which may take so long; remove the folder."""
        gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to the JVM
        self.spark.stop()
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
    """``Session.release_callbacks`` for whoever has only the session."""
    client = spark.sparkContext._gateway._gateway_client  # noqa: SLF001 - no public way
    with _cleaning:
        JavaObject("GATEWAY_SERVER", client).getCallbackClient().periodicCleanup()


def core_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def with_retries(master: str) -> str:
    """The master, where a lost Python worker does not fail the whole batch.

    A local master makes one attempt at each of its tasks unless it names a number of them.
    """
    found = _LOCAL.fullmatch(master.strip())
    return f"local[{found[1] or 1},{TASK_FAILURES_MAX}]" if found else master


def settings(
    node: Mapping[str, str],
    *,
    folder: Path,
    scratch: Path,
    jars: list[Path],
    cores: int,
    java_options: Sequence[str] = (),
) -> dict[str, str]:
    """The session's configuration: measured defaults under the node's ``spark.*`` properties.

    Args:
        node: node properties; those that start with ``spark.`` win.
        folder: private folder of the session.
        scratch: where the JVM puts temporary files and sockets.
        jars: Spark's Kafka source and what it needs.
        cores: cores of this machine that may be used.
        java_options: more options of the JVM.
    """
    options = [
        "-XX:+UseSerialGC",  # 230 MB less than G1 at the same throughput
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.net.preferIPv4Stack=true",
        f'"-Dlog4j2.configurationFile={folder / "log4j2.properties"}"',
    ]
    own = {
        "spark.master": f"local[{cores},{TASK_FAILURES_MAX}]",
        "spark.app.name": "icefloe",
        "spark.driver.memory": "1536m",
        # what all tasks of a batch send, twice of it at a time, has to fit beside the rest
        "spark.driver.maxResultSize": "256m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(options),
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
        # bytes bound a batch of large records, rows one of small ones; see
        # worker.task.source_reader._column
        ARROW_BYTES: str(16 * 2**20),
        ARROW_ROWS: "10000",
        # it evaluates expressions outside of what catches their errors, see worker.sql.sql_batches
        "spark.sql.subexpressionElimination.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
        "spark.python.daemon.module": "worker.spark.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        **{f"spark.hadoop.fs.{scheme}.impl": _NO_FILE_SYSTEM for scheme in _CLOSED_SCHEMES},
    }
    given = {k: v for k, v in node.items() if k.startswith("spark.")}
    if "spark.master" in given:
        given["spark.master"] = with_retries(given["spark.master"])
    secured = _authentication(given)
    found = _found_by_jvm(given, jars)
    default = " ".join(
        [
            f'"-Djava.io.tmpdir={scratch}"',
            *_NO_XML,
            *java_options,
            given.get(_DEFAULT_OPTIONS, ""),
        ]
    )
    return {**own, **secured, **given, **found, **_OF_QUERIES, _DEFAULT_OPTIONS: default.strip()}


def _found_by_jvm(given: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """How the JVMs of the session find the classes of the Kafka source.

    A local session has them on the class path of its one JVM: an archive of classes holds nothing
    that comes by ``spark.jars``, and Spark copies those jars at each start.
    """
    if _is_local(given.get("spark.master", "local")):
        own = [given[_CLASS_PATH]] if given.get(_CLASS_PATH) else []
        return {_CLASS_PATH: os.pathsep.join([*own, *map(str, jars)])} if jars else {}
    return {} if "spark.jars" in given else {"spark.jars": ",".join(map(str, jars))}


def _is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[[^]]*\])?", master.strip()) is not None


def _authentication(given: Mapping[str, str]) -> dict[str, str]:
    """Only processes of this session may talk to it; between machines in cipher.

    Raises:
        ConfigError: ``spark_secret_missing``: the master makes no secret itself.
    """
    master = given.get("spark.master", "local")
    if given.get("spark.authenticate", "true").strip().lower() != "true":
        return {}
    if _is_local(master):
        return {"spark.authenticate": "true"}
    makes_secret = master.startswith(("yarn", "k8s://"))
    if not makes_secret and not any(key.startswith(_SECRET) for key in given):
        raise ConfigError(
            f"spark.master is {master}, which makes no secret for spark.authenticate: set "
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
    """Start Spark; takes about 2 s with an archive of classes, 6 s without.

    Args:
        node: node properties.
        folder: parent of the session's private folder; the system's temporary folder if None. What
            killed workers left there is removed.
        java_options: more options of the JVM; those for the archive of classes if None.

    Raises:
        ConfigError: no usable Java, jars that do not match their check sums, or no secret for a
            remote master.
        RetriableError: jars could not be downloaded.
    """
    for name in _TALKERS:
        PySparkLogger.getLogger(name).disabled = True
    folders = _private_folders(folder)
    home, scratch = folders[0].path, folders[-1].path / "tmp"
    scratch.mkdir()
    cores = core_count()
    os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    os.environ[WORKER_PID_VARIABLE] = str(os.getpid())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if node.get("spark.master", "local").startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    more = archive_options() if java_options is None else java_options
    jars = resolve("spark-kafka")
    conf = settings(node, folder=home, scratch=scratch, jars=jars, cores=cores, java_options=more)
    (home / "log4j2.properties").write_text(_LOG4J.format(level="warn"))
    properties = home / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{k} {_escaped(v)}\n" for k, v in conf.items()))
    given = {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(properties))} pyspark-shell",
        "TMPDIR": str(scratch),  # of the Python workers
    }
    try:
        with _environment(given):
            spark = SparkSession.builder.getOrCreate()
    finally:
        properties.unlink()
    cores = max(int(spark.sparkContext.defaultParallelism), 1)
    return Session(spark, _of_rows(spark, node), home, cores, folders)


def _of_rows(spark: SparkSession, node: Mapping[str, str]) -> SparkSession:
    if ARROW_BYTES in node:
        return spark  # the operator has chosen
    made = spark.newSession()
    made.conf.set(ARROW_BYTES, str(2**31 - 1))  # the one bound that Spark does not look for
    made.conf.set(_OF_ROWS, "true")
    made.conf.set(ARROW_ROWS, node.get(ARROW_ROWS, str(SMALL_ROWS)))
    return made


def is_of_rows(rows: DataFrame) -> bool:
    """Whether these rows go to Python in batches that are bounded in rows alone."""
    return bool(rows.sparkSession.conf.get(_OF_ROWS, "false") == "true")


def held_small(column: Column, size: Column, ddl: str) -> Column:
    """A column of that type, whose rows end the read where they are large: ``LARGE_RECORD``."""
    refusal = F.raise_error(F.lit(LARGE_RECORD_TEXT)).cast(ddl)
    return F.when(size > LARGE_BYTES, refusal).otherwise(column)


def _private_folders(parent: Path | None) -> tuple[SessionFolder, ...]:
    """The session's folder, and one for sockets where its path is too long for them."""
    home = SessionFolder.make(parent)
    if len(os.fsencode(home.path / "tmp")) <= SOCKET_FOLDER_BYTES_MAX:
        return (home,)
    return home, SessionFolder.make(_SYSTEM)


@contextlib.contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    """Variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _escaped(value: str) -> str:
    """A value in the form of Java's property files."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")

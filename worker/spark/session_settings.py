"""Settings of the Spark session of a worker process, which were chosen by measurement.

Source:
    Spark 4.1 configuration; the measurements are in docs/decisions/0003.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from connect.config.spark_master import MASTER, is_local
from connect.errors import ConfigError

TASK_FAILURES_MAX = 3
_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*\])?")
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
REDACTED = r"(?i)secret|password|token|access[.]?key|credential|jaas|sasl|ssl[.]key"
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
LOG4J = """\
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

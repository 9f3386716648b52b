"""Spark's JVM: its start, its standard error, and its objects in Python.

Rules of this file:
- A process has one JVM of Spark. Other modules reach Java through these functions: they are the
  places that a new version of PySpark may break (docs/reference/private-members.md).
- Spark adds a module of Java whose notice is the first line of each start. It is left out of the
  standard error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

_NOTICE: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"
_STANDARD_ERROR: Final = 2
_END_TIMEOUT_S: Final = 5.0  # what is left in the pipe when the JVM has ended


class SparkJvm:
    """A running JVM and the thread that copies its standard error."""

    def __init__(self) -> None:
        ours, theirs = os.pipe()
        self._copying = threading.Thread(target=_copy, args=(ours,), name="jvm-errors", daemon=True)
        self._copying.start()
        try:
            self.gateway: JavaGateway = launch_gateway(popen_kwargs={"stderr": theirs})
        except PySparkRuntimeError:
            os.close(theirs)
            self._copying.join(_END_TIMEOUT_S)  # the last lines say why it has ended
            raise
        os.close(theirs)

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the JVM has ended, for any reason, and its output is copied.

        Raises:
            TimeoutExpired: it runs after ``timeout_s``.
        """
        self.gateway.proc.wait(timeout_s)
        self._copying.join(_END_TIMEOUT_S)

    def shutdown(self, timeout_s: float) -> None:
        """End the JVM; another one may be started then.

        Raises:
            TimeoutExpired: it runs after ``timeout_s``.
        """
        with contextlib.suppress(Py4JError, OSError):  # it has ended
            self.gateway.shutdown()
        self.gateway.proc.stdin.close()  # the JVM ends when its standard input does
        self.wait(timeout_s)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - it starts none otherwise


def gateway_of(context: SparkContext) -> Any:
    """Return py4j's gateway to the JVM, which has its classes as ``.jvm``."""
    return context._gateway  # noqa: SLF001 - pyspark has no public way


def jvm_of(spark: SparkSession) -> Any:
    """Return the classes of the JVM."""
    return gateway_of(spark.sparkContext).jvm


def spark_context_of(context: SparkContext) -> Any:
    """Return the context's object in Java."""
    return gateway_of(context).jvm.org.apache.spark.SparkContext.getOrCreate()


def java_session(spark: SparkSession) -> Any:
    """Return the session's object in Java."""
    return spark._jsparkSession  # noqa: SLF001 - pyspark has no public way


def query_execution(rows: DataFrame) -> Any:
    """Return the execution of a query in Java, which has its plans."""
    return rows._jdf.queryExecution()  # noqa: SLF001 - pyspark has no public way


def arrow_batches(rows: DataFrame) -> list[Any]:
    """Run a query; ``toArrow`` does the same, and asks the JVM for the schema of each result."""
    batches: list[Any] = rows._collect_as_arrow()  # noqa: SLF001 - of toArrow
    return batches


def _copy(pipe: int) -> None:
    """Copy the lines of a pipe to standard error, until its end."""
    with os.fdopen(pipe, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOTICE):
                _write(line)


def _write(line: bytes) -> None:
    """Write to the descriptor: a file object may be locked while the interpreter ends."""
    while line:
        try:
            line = line[os.write(_STANDARD_ERROR, line) :]
        except OSError:  # its reader is gone: the JVM must not wait
            return

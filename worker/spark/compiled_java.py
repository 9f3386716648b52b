"""Loads Java classes of this project: Spark's own compiler compiles them in the worker's JVM.

Rules of this file:
- A source is a resource of a package, with one public class. The first use of it in a session
  compiles it and adds the classes to the session, so that executors get them as well.
- A class that only the driver uses is compiled without a session, and no executor gets it.
- Janino compiles them. It is part of Spark, and no JDK is needed. It supports neither lambdas nor
  inferred type arguments.
"""

from __future__ import annotations

import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from worker.spark.session import Session

_loading = threading.Lock()


def load_class(spark: SparkSession, package: str, source: str, name: str) -> Any:
    """Return a Java class.

    Args:
        spark: the session.
        package: Python package that has the source as a resource.
        source: file name of the source.
        name: full name of the class in Java, with ``$`` before a nested one.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - no public way
    loader = spark._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001 - the same
    with _loading:
        try:
            return jvm.java.lang.Class.forName(name, True, loader)  # noqa: FBT003 - Java's
        except Py4JJavaError:
            pass
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files(package).joinpath(source).read_text())
        compiled = compiler.getBytecodes()
        jar = Path(str(spark.conf.get("spark.local.dir"))) / f"icefloe-{Path(source).stem}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for each in list(compiled):
                archive.writestr(f"{each.replace('.', '/')}.class", bytes(compiled[each]))
        spark._jsparkSession.sessionState().resourceLoader().addJar(str(jar))  # noqa: SLF001
        return jvm.java.lang.Class.forName(name, True, loader)  # noqa: FBT003 - Java's


def load_driver_class(session: Session, package: str, source: str, name: str) -> Any:
    """Return a Java class for this JVM only, before Spark SQL runs; arguments as ``load_class``.

    py4j keeps methods by the name of their class. So a method is called on objects of this class,
    or of the one of ``load_class``, but not of both.
    """
    with _loading:
        if name not in session.driver_classes:
            jvm: Any = session.context._jvm  # noqa: SLF001 - no public way
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.ClassLoader.getSystemClassLoader())
            compiler.cook(files(package).joinpath(source).read_text())
            session.driver_classes[name] = compiler.getClassLoader().loadClass(name)
        return session.driver_classes[name]


def new_instance(context: SparkContext, loaded: Any, *arguments: Any) -> Any:
    """Return a new object of a class with one public constructor.

    Raises:
        Py4JJavaError: the constructor failed.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - no public way
    gateway: Any = context._gateway  # noqa: SLF001 - no public way
    java_arguments = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for index, argument in enumerate(arguments):
        java_arguments[index] = argument
    return loaded.getConstructors()[0].newInstance(java_arguments)

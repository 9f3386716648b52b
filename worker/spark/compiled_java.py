"""Loads Java classes of this project: Spark's own compiler compiles them in the worker's JVM.

Rules of this file:
- A Python package has its Java sources in the folder ``java``. They are compiled together.
- The first use in a session compiles them and adds the classes to the session, so that executors
  get them as well.
- Classes that only the driver uses are compiled without a session, and no executor gets them.
- py4j keeps methods by the name of their class. So a class that is called from Python is loaded for
  sessions, or for the driver, but never for both.
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

from worker.spark.jvm import gateway_of, java_session, jvm_of
from worker.spark.session import Session

_loading = threading.Lock()


def load_class(spark: SparkSession, package: str, name: str) -> Any:
    """Return a Java class.

    Args:
        spark: the session.
        package: Python package that has the sources.
        name: full name of the class in Java, with ``$`` before a nested one.
    """
    jvm, in_java = jvm_of(spark), java_session(spark)
    loader = in_java.sharedState().jarClassLoader()
    with _loading:
        try:
            return jvm.java.lang.Class.forName(name, True, loader)  # noqa: FBT003 - Java's
        except Py4JJavaError:
            pass
        compiled = _compile(spark.sparkContext, package, loader)
        jar = Path(str(spark.conf.get("spark.local.dir"))) / f"icefloe-{package}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for path in list(compiled):
                archive.writestr(path, bytes(compiled[path]))
        in_java.sessionState().resourceLoader().addJar(str(jar))
        return jvm.java.lang.Class.forName(name, True, loader)  # noqa: FBT003 - Java's


def load_driver_class(session: Session, package: str, name: str) -> Any:
    """Return a Java class for this JVM only, before Spark SQL runs; arguments as ``load_class``."""
    with _loading:
        if name not in session.driver_classes:
            jvm = session.jvm.gateway.jvm
            system = jvm.java.lang.ClassLoader.getSystemClassLoader()
            util = jvm.org.codehaus.commons.compiler.util
            compiled = util.resource.MapResourceFinder(_compile(session.context, package, system))
            loader = util.ResourceFinderClassLoader(compiled, system)
            session.driver_classes[name] = loader.loadClass(name)
        return session.driver_classes[name]


def _compile(context: SparkContext, package: str, loader: Any) -> Any:
    """Return a Java map of class files by their paths.

    Args:
        context: of the JVM.
        package: as ``load_class``.
        loader: has the classes that the sources use.
    """
    gateway = gateway_of(context)
    jvm = gateway.jvm
    resource = jvm.org.codehaus.commons.compiler.util.resource
    sources = sorted(files(package).joinpath("java").iterdir(), key=lambda each: each.name)
    units = gateway.new_array(resource.Resource, len(sources))
    for index, source in enumerate(sources):
        units[index] = resource.StringResource(source.name, source.read_text())
    compiled = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resource.MapResourceCreator(compiled))
    compiler.compile(units)
    return compiled


def new_instance(context: SparkContext, loaded: Any, *arguments: Any) -> Any:
    """Return a new object of a class with one public constructor.

    Raises:
        Py4JJavaError: the constructor failed.
    """
    gateway = gateway_of(context)
    java_arguments = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for index, argument in enumerate(arguments):
        java_arguments[index] = argument
    return loaded.getConstructors()[0].newInstance(java_arguments)

"""Finds a Java runtime for the broker, Spark and Iceberg: version 17 or newer."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from connect.errors import ConfigError

JAVA_VERSION_MIN = 17
_ADVICE = f"install a Java {JAVA_VERSION_MIN} or newer runtime and set JAVA_HOME or put it on PATH"


def find_java(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the ``java`` program for child JVMs.

    Args:
        environ: contains ``JAVA_HOME`` and ``PATH``; the process environment if None.

    Raises:
        ConfigError: ``java_missing`` or ``java_too_old``.
    """
    env = os.environ if environ is None else environ
    home = env.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        if not os.access(program, os.X_OK):
            raise ConfigError(
                f"JAVA_HOME is {home}, but it contains no bin/java: {_ADVICE}",
                code="java_missing",
            )
    else:
        java = shutil.which("java", path=env.get("PATH"))
        if java is None:
            raise ConfigError(f"Java was not found: {_ADVICE}", code="java_missing")
        program = Path(java)
    version = _major_version(program)
    if version < JAVA_VERSION_MIN:
        raise ConfigError(f"{program} is Java {version}: {_ADVICE}", code="java_too_old")
    return program


@functools.cache
def _major_version(program: Path) -> int:
    """Return the version that ``java -version`` prints; folder names are not reliable."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"{program} does not run ({error}): {_ADVICE}", code="java_missing"
        ) from error
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if match is None:
        raise ConfigError(f"{program} prints no version: {_ADVICE}", code="java_missing")
    major, minor = match.groups()
    return int(minor) if major == "1" and minor else int(major)

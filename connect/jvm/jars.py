"""Resolves groups of jars into a per-user cache and verifies them against ``jars.lock``.

Rules of this file:
- Ivy, a part of pyspark, resolves the artifacts. Its Maven 2 resolver has the central repository
  as default, so no repository is configured. ``ICEFLOE_MAVEN_REPOSITORY`` sets a mirror.
- A jar is used only if its SHA-256 is in ``jars.lock``.
- The folder of a group is created by one rename, so it is always complete. Its name contains the
  hash of its lock entry, so a changed lock file never uses an old folder.

``python -m connect.jvm.jars resolve [GROUP...]`` fills the cache;
``python -m connect.jvm.jars lock [GROUP...]`` updates the lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.jvm.java import find_java

LOCK_FILE = Path(__file__).with_name("jars.lock")
RESOLVE_TIMEOUT_S = 900
_CLASSIFIER_NAMESPACE = "http://ant.apache.org/ivy/maven"  # an XML namespace, never requested


@dataclass(frozen=True, slots=True)
class JarGroup:
    """Artifacts that Ivy resolves.

    ``coordinates`` are ``organisation:module:version[:classifier]``; ``overrides`` force the
    version of a transitive dependency; ``excludes`` are ``organisation:module``;
    ``without_pyspark_jars`` drops the jars that pyspark ships; ``is_whole`` takes jars that contain
    what they need, without dependencies.
    """

    coordinates: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    without_pyspark_jars: bool = False
    is_whole: bool = False


_PROVIDED_BY_CONNECT = (
    "org.apache.kafka:connect-api",
    "org.apache.kafka:connect-json",
    "org.apache.kafka:kafka-clients",
)


def _rest_server(version: str) -> JarGroup:
    """Return Iceberg's REST catalog of a version, as its own tests start it."""
    return JarGroup(
        (
            f"org.apache.iceberg:iceberg-open-api:{version}:test-fixtures",
            f"org.apache.iceberg:iceberg-core:{version}",
            f"org.apache.iceberg:iceberg-core:{version}:tests",
            "org.xerial:sqlite-jdbc:3.50.3.0",
            "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.4",
            "org.eclipse.jetty.compression:jetty-compression-server:12.1.4",
            "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.4",
            "org.apache.hadoop:hadoop-client-api:3.4.2",
            "org.apache.hadoop:hadoop-client-runtime:3.4.2",
            "commons-logging:commons-logging:1.3.5",
            "org.slf4j:slf4j-simple:2.0.16",
        )
    )


GROUPS: Mapping[str, JarGroup] = {
    "kafka": JarGroup(
        (
            "org.apache.kafka:kafka_2.13:4.3.1",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # required for the broker's log
        )
    ),
    "spark-kafka": JarGroup(
        ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",),
        # version 4.1.3 of the token provider was never published; Icefloe uses no delegation tokens
        overrides=("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",),
        without_pyspark_jars=True,
    ),
    "iceberg-spark": JarGroup(
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",), without_pyspark_jars=True
    ),
    # of the maintenance process: tables on S3 and Google's store, Glue, catalogs in a database
    "iceberg-aws": JarGroup(
        ("org.apache.iceberg:iceberg-aws-bundle:1.12.0",), without_pyspark_jars=True
    ),
    "iceberg-gcp": JarGroup(
        ("org.apache.iceberg:iceberg-gcp-bundle:1.11.0",), without_pyspark_jars=True
    ),
    "jdbc": JarGroup(
        ("org.xerial:sqlite-jdbc:3.50.3.0", "org.postgresql:postgresql:42.7.7"),
        without_pyspark_jars=True,
    ),
    # the groups below are for tests only
    "iceberg-rest": _rest_server("1.11.0"),
    # the newest version that answers 400 for a stale sequence number
    "iceberg-rest-1.10": _rest_server("1.10.0"),
    "iceberg-events": JarGroup(
        (
            "org.apache.iceberg:iceberg-kafka-connect-events:1.12.0",
            "org.apache.iceberg:iceberg-core:1.12.0",
            "org.slf4j:slf4j-simple:2.0.16",
        )
    ),
    # an OAuth2 server with OpenID Connect, for logins at the broker
    "oauth-server": JarGroup(("no.nav.security:mock-oauth2-server:6.0.2",)),
    # Spark's reader of Delta tables
    "delta-spark": JarGroup(("io.delta:delta-spark_4.1_2.13:4.1.0",), without_pyspark_jars=True),
    # stores and catalogs that tests start
    "s3proxy": JarGroup(("org.gaul:s3proxy:4.1.0:jar-with-dependencies",), is_whole=True),
    "nessie": JarGroup(("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",), is_whole=True),
    # for benchmarks against the Java sink
    "java-connect": JarGroup(
        (
            "org.apache.kafka:connect-runtime:4.3.1",
            "org.apache.kafka:connect-json:4.3.1",
            "org.apache.kafka:connect-transforms:4.3.1",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
            "org.apache.logging.log4j:log4j-core:2.25.1",
            "org.apache.logging.log4j:log4j-1.2-api:2.25.1",
        )
    ),
    "java-sink": JarGroup(
        (
            "org.apache.iceberg:iceberg-kafka-connect:1.12.0",
            "org.apache.iceberg:iceberg-kafka-connect-transforms:1.12.0",
            "org.apache.iceberg:iceberg-core:1.12.0",
            "org.apache.iceberg:iceberg-data:1.12.0",
            "org.apache.iceberg:iceberg-parquet:1.12.0",
            "org.apache.hadoop:hadoop-client-api:3.4.2",
            "org.apache.hadoop:hadoop-client-runtime:3.4.2",
        )
    ),
    # change streams of real databases
    "debezium-postgres": JarGroup(
        ("io.debezium:debezium-connector-postgres:3.6.1.Final",),
        excludes=_PROVIDED_BY_CONNECT,
    ),
    "debezium-mongodb": JarGroup(  # its transformations only
        ("io.debezium:debezium-connector-mongodb:3.6.1.Final",),
        excludes=_PROVIDED_BY_CONNECT,
    ),
    "debezium-mariadb": JarGroup(
        ("io.debezium:debezium-connector-mariadb:3.5.0.Final",),
        excludes=_PROVIDED_BY_CONNECT,
    ),
    # Avro for Kafka Connect: Confluent's converter is not in the central repository
    "java-avro": JarGroup(
        (
            "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",
            "io.apicurio:apicurio-registry-serdes-avro-serde:2.6.13.Final",
            "io.apicurio:apicurio-registry-client:2.6.13.Final",
        ),
        excludes=_PROVIDED_BY_CONNECT,
    ),
}
ON_DEMAND = frozenset(
    {
        "debezium-mariadb",
        "debezium-mongodb",
        "debezium-postgres",
        "iceberg-gcp",
        "iceberg-rest-1.10",
        "java-avro",
        "java-connect",
        "java-sink",
        "nessie",
    }
)
"""Large groups for one store, tests and the Java sink; ``resolve`` without names skips them."""


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the cache folder: ``ICEFLOE_CACHE_DIR``, or ``icefloe`` in the user's cache folder."""
    env = os.environ if environ is None else environ
    own = env.get("ICEFLOE_CACHE_DIR")
    if own:
        return Path(own)
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icefloe"


def pyspark_jars_dir() -> Path:
    """Return the jars folder of the installed pyspark, without importing pyspark.

    Raises:
        ConfigError: ``pyspark_missing``.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("pyspark is not installed in this environment", code="pyspark_missing")
    return Path(spec.origin).parent / "jars"


def resolve(name: str, *, cache: Path | None = None) -> list[Path]:
    """Return the jars of a group; jars that are not in the cache are downloaded.

    Safe to call from several processes at once.

    Args:
        name: a key of ``GROUPS``.
        cache: the cache folder; ``cache_dir()`` if None.

    Raises:
        ConfigError: ``jars_unknown`` (no such group or no lock entry), ``jars_mismatch`` (a jar
            differs from the lock file), ``java_missing``, ``java_too_old``.
        RetriableError: ``jars_unavailable``: a download failed; the message has Ivy's output.
    """
    cache = cache or cache_dir()
    paths = _paths(name, cache)
    if not _is_complete(paths):
        with _exclusive(cache):
            if not _is_complete(paths):  # another process may have resolved the group meanwhile
                _install(name, read_lock()[name], paths[0].parent, cache)
    return paths


def class_path(name: str, *, cache: Path | None = None) -> str:
    """Return the group as a value for ``java -cp``; raises the errors of ``resolve``."""
    return os.pathsep.join(str(jar) for jar in resolve(name, cache=cache))


def read_lock() -> dict[str, dict[str, str]]:
    """Return the lock file: group name -> jar name -> SHA-256 in hexadecimal."""
    if not LOCK_FILE.exists():
        return {}
    content: dict[str, dict[str, str]] = json.loads(LOCK_FILE.read_text("utf-8"))
    return content


def write_lock(names: Sequence[str]) -> None:
    """Resolve groups and update their entries in the lock file; other groups are kept."""
    cache = cache_dir()
    locks = {name: jars for name, jars in read_lock().items() if name in GROUPS}
    for name in names:
        with _exclusive(cache), tempfile.TemporaryDirectory(prefix="icefloe-jars-") as scratch:
            retrieved = _retrieve(GROUPS[name], Path(scratch), cache)
            locks[name] = {jar.name: _sha256(jar) for jar in retrieved}
    LOCK_FILE.write_text(json.dumps(locks, indent=1, sort_keys=True) + "\n", "utf-8")


def _paths(name: str, cache: Path) -> list[Path]:
    """Return where the jars of a group are in the cache, or will be."""
    locked = read_lock().get(name)
    if locked is None:
        raise ConfigError(f"no jar group {name!r} in {LOCK_FILE.name}", code="jars_unknown")
    identity = hashlib.sha256(json.dumps(locked, sort_keys=True).encode()).hexdigest()[:16]
    return [cache / "jars" / f"{name}-{identity}" / jar for jar in sorted(locked)]


def _is_complete(paths: Sequence[Path]) -> bool:
    return all(path.is_file() for path in paths)


def _install(name: str, locked: Mapping[str, str], folder: Path, cache: Path) -> None:
    """Resolve into a temporary folder, verify every jar, and rename the folder to the target."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as scratch:
        jars = _retrieve(GROUPS[name], Path(scratch), cache)
        actual = {jar.name: _sha256(jar) for jar in jars}
        if actual != locked:
            wrong = sorted(jar for jar in {*actual, *locked} if actual.get(jar) != locked.get(jar))
            raise ConfigError(
                f"jars of the group {name!r} differ from {LOCK_FILE.name}: {', '.join(wrong)}; "
                "they are not used; if the change is intended, update the lock file",
                code="jars_mismatch",
            )
        complete = Path(scratch, "complete")
        complete.mkdir()
        for jar in jars:
            jar.rename(complete / jar.name)
        if folder.exists():  # incomplete; a rename cannot replace a folder that is not empty
            shutil.rmtree(folder)
        complete.rename(folder)


def _retrieve(group: JarGroup, scratch: Path, cache: Path) -> list[Path]:
    """Run Ivy; return the jars in ``scratch/out``."""
    settings, module, out = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "out"
    module.write_text(_module_xml(group), "utf-8")
    settings.write_text(_settings_xml(cache / "ivy"), "utf-8")
    provided = pyspark_jars_dir()
    ivy = [*provided.glob("ivy-*.jar"), *provided.glob("commons-cli-*.jar")]
    command: list[str | Path] = [
        *(find_java(), "-Xshare:auto", "-XX:TieredStopAtLevel=1"),
        *("-cp", os.pathsep.join(str(jar) for jar in ivy), "org.apache.ivy.Main", "-warn"),
        *("-settings", settings, "-ivy", module, "-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{out}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RetriableError(
            f"resolving jars took longer than {RESOLVE_TIMEOUT_S} s", code="jars_unavailable"
        ) from error
    if done.returncode or not out.is_dir():
        output = (done.stdout[-3000:] + done.stderr[-1000:]).strip()
        raise RetriableError(
            f"Ivy could not resolve {', '.join(group.coordinates)}: {output}",
            code="jars_unavailable",
        )
    jars = sorted(out.iterdir())
    if group.without_pyspark_jars:
        provided_artifacts = {_artifact(jar.name) for jar in provided.glob("*.jar")}
        jars = [jar for jar in jars if _artifact(jar.name) not in provided_artifacts]
    return jars


def _artifact(file_name: str) -> str:
    """Return the artifact of a jar: ``commons-pool2-2.12.1.jar`` -> ``commons-pool2``."""
    parts = file_name.removesuffix(".jar").split("-")
    named = [part for i, part in enumerate(parts) if i == 0 or not part[:1].isdigit()]
    return "-".join(named)


def _module_xml(group: JarGroup) -> str:
    """Return an Ivy module that depends on the group's coordinates."""
    lines = [
        f'<ivy-module version="2.0" xmlns:m={quoteattr(_CLASSIFIER_NAMESPACE)}>',
        '<info organisation="local" module="resolve"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    classifiers: dict[str, list[str]] = {}
    for coordinate in group.coordinates:
        organisation, module, revision, *classifier = coordinate.split(":")
        base = f"{organisation}:{module}:{revision}"
        classifiers.setdefault(base, []).extend(classifier or [""])
    for base, of_artifact in classifiers.items():
        organisation, module, revision = (quoteattr(part) for part in base.split(":"))
        artifacts = "".join(
            f'<artifact name={module} type="jar" ext="jar"'
            + (f" m:classifier={quoteattr(classifier)}/>" if classifier else "/>")
            for classifier in of_artifact
            if of_artifact != [""]
        )
        lines.append(
            f"<dependency org={organisation} name={module} rev={revision} "
            f'conf="default->default" transitive="{str(not group.is_whole).lower()}">'
            f"{artifacts}</dependency>"
        )
    for exclude in group.excludes:
        organisation, module = (quoteattr(part) for part in exclude.split(":"))
        lines.append(f"<exclude org={organisation} module={module}/>")
    for override in group.overrides:
        organisation, module, revision = (quoteattr(part) for part in override.split(":"))
        lines.append(
            f'<override org={organisation} module={module} matcher="exact" rev={revision}/>'
        )
    return "".join([*lines, "</dependencies></ivy-module>"])


def _settings_xml(ivy_cache: Path) -> str:
    """Return Ivy's settings; without a root, the resolver uses the central repository."""
    mirror = os.environ.get("ICEFLOE_MAVEN_REPOSITORY")
    root = f"root={quoteattr(mirror)} " if mirror else ""
    return (
        '<ivysettings><settings defaultResolver="main"/>'
        f"<caches defaultCacheDir={quoteattr(str(ivy_cache))}/>"
        f'<resolvers><ibiblio name="main" m2compatible="true" {root}useMavenMetadata="false"/>'
        "</resolvers></ivysettings>"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _exclusive(cache: Path) -> Iterator[None]:
    """Lock the cache: Ivy's cache does not support concurrent processes."""
    try:
        (cache / "jars").mkdir(parents=True, exist_ok=True)
        file = (cache / "jars" / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"the cache folder {cache} cannot be written ({error.strerror}); "
            "set ICEFLOE_CACHE_DIR to a writable folder",
            code="cache_unwritable",
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    """``resolve [GROUP...]`` or ``lock [GROUP...]``.

    Without a group, ``lock`` uses all groups, and ``resolve`` all except ``ON_DEMAND``.
    """
    if not arguments or arguments[0] not in {"resolve", "lock"}:
        print(__doc__)  # noqa: T201 - a command line
        return 2
    names = list(arguments[1:])
    try:
        if arguments[0] == "lock":
            write_lock(names or list(GROUPS))
        else:
            for name in names or [name for name in GROUPS if name not in ON_DEMAND]:
                if not _is_complete(_paths(name, cache_dir())):
                    print(f"jars: downloading {name}", file=sys.stderr)  # noqa: T201 - the same
                print(f"{name}: {len(resolve(name))} jars")  # noqa: T201 - a command line
    except IcefloeError as error:
        print(f"jars: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Iceberg's Java catalogs, opened in the JVM of Spark with a connector's catalog properties.

Rules of this file:
- The properties have the names of the Java sink, so most are passed on. Those that only PyIceberg
  knows are translated.
- Properties go to the catalog's object in the JVM, or to the JVM's system properties. They are in
  no configuration of Spark and in no process argument, because they may contain secrets.
- Only catalogs are accepted of which it is known that both clients commit under the same condition.

Source:
    Iceberg 1.12.0 ``CatalogUtil``, ``JdbcCatalog``, ``RESTCatalog``, ``ResolvingFileIO``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from connect.errors import ConfigError
from connect.gateways.catalog_properties import catalog_kind, client_config, sqlite_file
from worker.spark.jvm import gateway_of, spark_context_of

_IMPLEMENTATIONS: Final = {
    "rest": "org.apache.iceberg.rest.RESTCatalog",
    "sql": "org.apache.iceberg.jdbc.JdbcCatalog",
    "glue": "org.apache.iceberg.aws.glue.GlueCatalog",
}
_FILE_IO: Final = "org.apache.iceberg.io.ResolvingFileIO"
_DROPPED: Final = frozenset(
    {"type", "catalog-impl", "cache-enabled", "cache.expiration-interval-ms", "uri"}
)
_OF_PYICEBERG: Final = {"s3.region": "client.region"}
_SQLALCHEMY_QUERY: Final = frozenset({"connect_timeout", "options", "timeout"})
_AWS: Final = "iceberg-aws"
_JARS_BY_SCHEME: Final = {"s3": _AWS, "s3a": _AWS, "s3n": _AWS, "gs": "iceberg-gcp"}
_AWS_LOGIN: Final = {
    "access-key-id": "aws.accessKeyId",
    "secret-access-key": "aws.secretAccessKey",
    "session-token": "aws.sessionToken",
}
"""Keys of PyIceberg after ``glue.`` or ``client.``: system properties of Amazon's Java client."""
_LOCAL_SCHEMES: Final = frozenset({"", "file"})


@dataclass(frozen=True, slots=True)
class JavaCatalog:
    """A catalog as the Java client opens it.

    Attributes:
        name: the catalog's name; SQL catalogs store it with each table.
        implementation: name of its class.
        properties: its properties.
        jar_groups: groups of ``connect.jvm.jars`` that the class needs, next to Iceberg's.
        system_properties: login of a client that takes none from the catalog's properties.
    """

    name: str
    implementation: str
    properties: Mapping[str, str]
    jar_groups: tuple[str, ...]
    system_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> JavaCatalog:
        """Translate a connector's catalog properties.

        Args:
            name: ``iceberg.catalog``.
            properties: ``iceberg.catalog.*`` without the prefix, placeholders resolved.

        Raises:
            ConfigError: ``maintenance_unsupported``: no such catalog can be maintained.
        """
        kind = catalog_kind(properties)
        if kind not in _IMPLEMENTATIONS:
            raise ConfigError(
                f"tables of a catalog of type {kind} cannot be maintained by Icefloe, only those "
                "of the types rest, jdbc and glue; remove the iceberg.maintenance keys of this "
                "connector and use the maintenance of the catalog or of another engine",
                code="maintenance_unsupported",
            )
        out = {
            _OF_PYICEBERG.get(key, key): value
            for key, value in properties.items()
            if key not in _DROPPED
        }
        out.setdefault("io-impl", _FILE_IO)
        if kind == "rest":
            out["uri"] = properties["uri"]
            out["rest-metrics-reporting-enabled"] = "false"
            # PyIceberg's default
            out.setdefault("header.X-Iceberg-Access-Delegation", "vended-credentials")
            return cls(name, _IMPLEMENTATIONS[kind], out, ())
        if kind == "glue":
            if region := properties.get("glue.region"):
                out["client.region"] = region
            return cls(name, _IMPLEMENTATIONS[kind], out, (_AWS,), _aws_login(properties))
        out |= _jdbc(properties)
        out["jdbc.init-catalog-tables"] = "false"
        return cls(name, _IMPLEMENTATIONS[kind], out, ("jdbc",))

    def load(self, spark: SparkSession, identifier: Sequence[str]) -> JavaObject:
        """Open the catalog in the JVM and load a table.

        Raises:
            Py4JJavaError: the catalog refuses, or has no such table.
        """
        gateway = gateway_of(spark.sparkContext)
        jvm = gateway.jvm
        for key, value in self.system_properties.items():
            jvm.java.lang.System.setProperty(key, value)
        properties = jvm.java.util.HashMap()
        for key, value in self.properties.items():
            properties.put(key, value)
        hadoop = spark_context_of(spark.sparkContext).hadoopConfiguration()
        catalog = jvm.org.apache.iceberg.CatalogUtil.loadCatalog(
            self.implementation, self.name, properties, hadoop
        )
        *namespace, table = identifier
        levels = gateway.new_array(jvm.java.lang.String, len(namespace))
        for index, level in enumerate(namespace):
            levels[index] = level
        catalogs = jvm.org.apache.iceberg.catalog
        java_table: JavaObject = catalog.loadTable(
            catalogs.TableIdentifier.of(catalogs.Namespace.of(levels), table)
        )
        return java_table


def store_jars(location: str) -> tuple[str, ...]:
    """Return the jar groups that are needed to reach a table's files.

    Raises:
        ConfigError: ``maintenance_unsupported``.
    """
    scheme = urlsplit(location).scheme
    if scheme in _LOCAL_SCHEMES:
        return ()
    if scheme not in _JARS_BY_SCHEME:
        raise ConfigError(
            f"tables with a location that begins with {scheme}: cannot be maintained by Icefloe, "
            "only local ones and those on S3 and Google Cloud Storage; set "
            "iceberg.table.<name>.maintenance-enabled=false",
            code="maintenance_unsupported",
        )
    return (_JARS_BY_SCHEME[scheme],)


def _aws_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the login of Glue, if the properties have one; else the client's default chain holds.

    The process serves one connector, so no other catalog of the JVM takes it.
    """
    for prefix in ("glue.", "client."):
        if properties.get(f"{prefix}access-key-id"):
            login = {_AWS_LOGIN[key]: properties.get(prefix + key) for key in _AWS_LOGIN}
            return {key: value for key, value in login.items() if value}
    return {}


def _jdbc(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a JDBC connection, from a URL of JDBC or SQLAlchemy."""
    uri = properties["uri"]
    file = sqlite_file(str(client_config(properties).properties["uri"]))
    if file is not None:
        return {"uri": f"jdbc:sqlite:{file}", "clients": "1"}
    if uri.startswith("jdbc:"):
        return {"uri": uri}
    url = urlsplit(uri)
    query = urlencode([q for q in parse_qsl(url.query) if q[0] not in _SQLALCHEMY_QUERY])
    port = f":{url.port}" if url.port else ""
    out = {
        "uri": f"jdbc:postgresql://{url.hostname or ''}{port}{url.path}"
        + (f"?{query}" if query else "")
    }
    if url.username:
        out["jdbc.user"] = unquote(url.username)
    if url.password:
        out["jdbc.password"] = unquote(url.password)
    return out

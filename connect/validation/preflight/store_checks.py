"""Check that files can be written where the tables of a connector lie.

Rules of this file:
- A probe object of a few bytes is written next to the data files and deleted. Nothing else is
  created or changed. Local folders are not probed: they need no credentials.
- Errors of the catalog are left to the check of the catalog.
- A catalog's answer decides with which credentials a table's files are written, so the probe is
  written as the worker writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyiceberg.io import FileIO

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.local_paths import LOCAL, normalized_location
from connect.config.table_formats import AGGREGATE_LOCATION
from connect.errors import CommitRefused, ConfigError, IcefloeError, RetriableError
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_policy import check_catalog
from connect.gateways.catalog.table_properties import location_provider
from connect.gateways.catalog_properties import (
    FOLDER_ROOTS,
    ClientConfig,
    client_config,
    refuse_places,
)
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import has_credentials, probe
from connect.validation.preflight.catalog_checks import (
    absent_database,
    bounded,
    wanted_tables,
)
from connect.validation.preflight.live_checks import Check, Found, reported

_CATALOG: Final = "iceberg.catalog."
_KEYS: Final = ("s3.endpoint", "s3.access-key-id", "warehouse", "uri")


class StoreQuestions:
    """The check of the object stores of one connector's tables.

    Args:
        config: the configuration with resolved placeholders; ``raw`` is as sent.
        each_s: timeout of a request in seconds, and of the checks of all tables.
        clock: monotonic clock; makes the probe's name.
    """

    def __init__(self, config: ConnectorConfig, *, each_s: float, clock: Clock) -> None:
        self._config = config
        self._each_s = each_s
        self._clock = clock
        self._key = next(
            (_CATALOG + k for k in _KEYS if config.raw.get(_CATALOG + k)), "iceberg.catalog"
        )

    def check(self) -> Check:
        """Return the check."""
        question = (
            "Wrote a probe object to the store of the tables "
            f"(each request within {self._each_s:g} s)"
        )
        return Check(self._key, question, self._run)

    def _run(self) -> Found:
        properties = bounded(self._config.catalog_properties, self._each_s)
        catalog = client_config(properties)
        if catalog.kind != "rest" and _is_local(_root(catalog)):
            return
        deadline_ms = self._clock.monotonic_ms() + int(self._each_s * 1000)
        probed = set()
        for io, path in self._places(catalog, properties):
            where = normalized_location(path)
            if where.scheme == LOCAL or (where.scheme, where.host) in probed:
                continue
            if self._config.locations.refusal(path) is not None:
                continue  # reported by the check of locations
            if self._clock.monotonic_ms() > deadline_ms:
                return
            probed.add((where.scheme, where.host))
            try:
                probe(io, path)
            except (ConfigError, RetriableError) as error:
                yield self._key, reported(error)

    def _places(
        self, catalog: ClientConfig, properties: dict[str, str]
    ) -> Iterator[tuple[FileIO, str]]:
        """Yield a path for a probe, and its client, for each table and for new tables."""
        config = self._config
        name = f"icefloe-probe-{self._clock.new_timed_uuid()}"
        if absent_database(catalog) is None:
            try:
                gateway = open_catalog(config.catalog_name, properties, config.locations)
            except IcefloeError:
                return
            try:
                yield from self._of_tables(gateway, name)
            finally:
                gateway.close()
        warehouse = _root(catalog)
        is_created = any(each.is_created for each in wanted_tables(config)) or (
            config.auto_create_enabled
        )
        is_known = catalog.kind != "rest" or has_credentials(catalog.properties, warehouse)
        if is_created and is_known and "://" in warehouse:
            try:
                check_catalog(catalog, access_policy())
                refuse_places(catalog.properties, config.locations)
            except ConfigError:
                return
            yield GuardedFileIO(catalog.properties), f"{warehouse.rstrip('/')}/{name}"

    def _of_tables(self, gateway: CatalogGateway, name: str) -> Iterator[tuple[FileIO, str]]:
        for each in wanted_tables(self._config):
            try:
                table = gateway.load(each.name.split("."))
            except (CommitRefused, ConfigError, RetriableError):
                continue
            properties = {**table.properties, **self._config.write_properties}
            yield table.io, location_provider(table.location(), properties).new_data_location(name)


def state_check(config: ConnectorConfig, *, each_s: float, clock: Clock) -> Check:
    """Return the check of the store of a connector's aggregates; args as ``StoreQuestions``."""

    def run() -> Found:
        properties = bounded(config.state_properties, each_s)
        client = client_config(properties)
        root = _root(client)
        if _is_local(root):
            return
        try:
            refuse_places(client.properties, config.locations)
            io = GuardedFileIO(client.properties)
            probe(io, f"{root.rstrip('/')}/icefloe-probe-{clock.new_timed_uuid()}")
        except (ConfigError, RetriableError) as error:
            yield AGGREGATE_LOCATION, reported(error)

    question = f"Wrote a probe object to the store of the state (within {each_s:g} s)"
    return Check(AGGREGATE_LOCATION, question, run)


def _root(catalog: ClientConfig) -> str:
    """Return the location of new tables."""
    return str(catalog.properties.get(FOLDER_ROOTS.get(catalog.kind, "warehouse"), ""))


def _is_local(location: str) -> bool:
    return normalized_location(location).scheme == LOCAL

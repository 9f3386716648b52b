"""Opens the query of a connector, and the catalog of its static tables."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.config.location_policy import EVERYWHERE
from connect.config.static_tables_policy import is_location
from connect.config.table_formats import PARQUET
from connect.errors import ConfigError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog_properties import FOLDER_ROOTS
from connect.metrics import process_metrics
from connect.records.transforms.sql.sql_transform import SqlPlan
from worker.sql.sql_batches import SparkQuery
from worker.sql.static_tables import StaticTables

_NO_FOLDER: Final = "s3://none"  # of a query without static tables


def opened_query(
    config: ConnectorConfig, plan: SqlPlan, catalog: CatalogGateway, spark: SparkSession
) -> SparkQuery:
    """Return the query of a connector, with its static tables read and its plan checked.

    Args:
        config: the connector, placeholders resolved.
        plan: of its query.
        catalog: as ``open_query_catalog`` returns it.
        spark: the session that runs the query.

    Raises:
        ConfigError, CommitRefused, RetriableError: as ``SparkQuery.refresh``.
    """
    static_tables = StaticTables(plan, catalog, SystemClock(), config.static_tables)
    query = SparkQuery(spark, plan, static_tables)
    query.refresh()
    return query


def open_query_catalog(config: ConnectorConfig, plan: SqlPlan | None) -> CatalogGateway:
    """Open the catalog of the connector's tables and static tables.

    Raises:
        ConfigError: ``sql_table``: a query joins a table, and no catalog is configured; as
            ``open_catalog``.
        CommitRefused, RetriableError: as ``open_catalog``.
    """
    properties, locations = config.catalog_properties, config.locations
    if not config.has_catalog:
        places = () if plan is None else plan.tables.values()
        for place in places:
            if not is_location(place):
                raise ConfigError(
                    f"the query joins table {place}: set iceberg.catalog.* to its catalog",
                    code="sql_table",
                    connector=config.name,
                )
        # opens the store of static tables that are files; nothing is written
        folder = next(iter(places), _NO_FOLDER)
        properties = {**properties, "type": PARQUET, FOLDER_ROOTS[PARQUET]: folder}
        locations = EVERYWHERE  # the policy for static tables decides
    return open_catalog(
        config.catalog_name, properties, locations, process_metrics.catalog_requests("worker")
    )

"""Libraries of catalogs that are not installed."""

from __future__ import annotations

import pytest

from connect.errors import ConfigError
from connect.gateways.catalog.catalog_libraries import require_libraries
from connect.gateways.catalog_properties import client_config

REST = {"type": "rest", "uri": "http://c"}


@pytest.mark.parametrize(
    ("given", "library", "package"),
    [
        ({"type": "hive", "uri": "thrift://h:9083"}, "thrift", "icefloe[hive]"),
        ({"type": "glue"}, "boto3", "icefloe[glue]"),
        ({"type": "dynamodb"}, "boto3", "icefloe[aws]"),
        ({"type": "bigquery"}, "google.cloud.bigquery", "icefloe[gcp]"),
        ({**REST, "rest.auth.type": "google"}, "google.auth", "icefloe[gcp]"),
        ({**REST, "rest.auth.type": "entra"}, "azure.identity", "icefloe[azure]"),
        ({**REST, "rest.auth.type": "sigv4"}, "boto3", "icefloe[aws]"),
        ({**REST, "rest.sigv4-enabled": "true"}, "boto3", "icefloe[aws]"),
        ({"type": "delta", "delta.root": "/t"}, "deltalake", "icefloe[delta]"),
        ({"type": "parquet", "parquet.root": "s3://b/t"}, "boto3", "icefloe[aws]"),
    ],
)
def test_the_error_names_the_extra(given: dict[str, str], library: str, package: str) -> None:
    """Each documented catalog is installed by an extra; tests have all extras."""
    config = client_config(given)
    require_libraries(config)
    with pytest.raises(ConfigError, match=rf"pip install '{package.replace('[', '.')}'") as caught:
        require_libraries(config, lambda name: name != library)
    assert caught.value.code == "library_missing"
    assert library in caught.value.message


def test_rest_and_sql_catalogs_need_no_extra() -> None:
    """Also REST with OAuth, and local Parquet folders."""
    sql = {"type": "sql", "uri": "sqlite:///x", "warehouse": "/w"}
    folder = {"type": "parquet", "parquet.root": "/lake"}
    for given in (REST, {**REST, "credential": "c"}, sql, folder):
        require_libraries(client_config(given), lambda _: False)

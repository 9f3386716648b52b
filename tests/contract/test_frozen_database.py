"""A PostgreSQL server that is frozen while its machine still answers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from urllib.parse import urlencode

import psutil
import psycopg2
import pytest

from connect.errors import RetriableError
from connect.gateways.catalog import postgres_wait
from connect.gateways.catalog.catalog import open_catalog
from tests.support.stack import unique_name
from tests.support.table_harness import SCHEMA


def test_requests_to_a_frozen_database_end(
    postgres: str, sql_catalog_properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By our own limit; when it continues, the catalog is used again."""
    monkeypatch.setattr(postgres_wait, "GRACE_MS", 500)
    name = unique_name("frozen")
    separator = "&" if "?" in postgres else "?"
    uri = f"{postgres}{separator}{urlencode({'application_name': name})}"
    limits = {"rest.client.socket-timeout-ms": "5000"}
    gateway = open_catalog("iceberg", {**sql_catalog_properties, **limits, "uri": uri})
    table = gateway.create(("db", name), SCHEMA).name()
    backends = _backends(postgres, name)
    server = _parent(backends[0])
    with _frozen(backends):  # the next request finds its connection dead and opens another
        assert gateway.load(table).name() == table
    with (
        _frozen([server, *_backends(postgres, name)]),
        pytest.raises(RetriableError, match="did not answer"),
    ):
        gateway.load(table)
    assert gateway.load(table).name() == table
    gateway.drop(table)
    gateway.close()


@contextlib.contextmanager
def _frozen(processes: list[int]) -> Iterator[None]:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def _parent(pid: int) -> int:
    parent = psutil.Process(pid).ppid()
    assert "postgres" in psutil.Process(parent).name()
    return parent


def _backends(postgres: str, application: str) -> list[int]:
    connection = psycopg2.connect(postgres.replace("postgresql+psycopg2", "postgresql"))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [application]
        )
        pids = [pid for (pid,) in cursor.fetchall()]
    connection.close()
    return pids

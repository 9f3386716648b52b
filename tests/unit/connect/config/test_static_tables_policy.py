"""Which static tables queries may join: the operator decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.config.local_paths import LOCAL_KEY, USERS_FILE
from connect.config.static_tables_policy import STATIC_TABLES_PREFIX, StaticTablesPolicy
from connect.validation.parse import parse

_USERS = {USERS_FILE: "users.yaml"}
_LISTED = {
    **_USERS,
    f"{STATIC_TABLES_PREFIX}alice-*": "geo.*, s3://shared/static, /srv/static",
    LOCAL_KEY: "/srv",
}


@pytest.mark.parametrize(
    ("node", "source", "is_allowed"),
    [
        ({}, "geo.places", True),
        ({}, "/srv/names", True),
        (_USERS, "geo.places", False),
        (_USERS, "/srv/names", False),
        (_USERS, "s3://shared/static", False),
        ({**_USERS, LOCAL_KEY: "/srv"}, "/srv/names", False),
        (_LISTED, "geo.places", True),
        (_LISTED, "bob.places", False),
        (_LISTED, "s3://shared/static/a.parquet", True),
        (_LISTED, "s3a://shared/static/a.parquet", True),
        (_LISTED, "s3://shared/static/../bob/a.parquet", False),
        (_LISTED, "s3://shared/staticity/a.parquet", False),
        (_LISTED, "s3://shared@other/static", False),
        (_LISTED, "/srv/static/names", True),
        (_LISTED, "file:///srv/static/names", True),
        (_LISTED, "/srv/static/../bob", False),
        (_LISTED, "/etc/passwd", False),
        (_LISTED, "http://127.0.0.1/x", False),
        ({**_LISTED, LOCAL_KEY: "/other"}, "/srv/static/names", False),
        ({f"{STATIC_TABLES_PREFIX}default": ""}, "geo.places", False),
        ({f"{STATIC_TABLES_PREFIX}default": "*"}, "geo.places", True),
        ({f"{STATIC_TABLES_PREFIX}default": "*"}, "/srv/names", False),
    ],
)
def test_a_query_may_join_only_listed_tables_if_the_api_has_users(
    node: dict[str, str], source: str, is_allowed: bool
) -> None:
    """Links and dots in paths are resolved."""
    refusal = StaticTablesPolicy.of("alice-1", node).refusal(source)
    assert (refusal is None) is is_allowed
    assert refusal is None or f"{STATIC_TABLES_PREFIX}<connector>" in refusal


def test_links_of_static_tables_are_resolved(tmp_path: Path) -> None:
    """A local path is checked after that."""
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "link").symlink_to("/etc")
    node = {f"{STATIC_TABLES_PREFIX}default": str(tmp_path / "static")}
    policy = StaticTablesPolicy.of("c", node)
    assert policy.refusal(str(tmp_path / "static" / "x")) is None
    assert policy.refusal(str(tmp_path / "static" / "link" / "passwd")) is not None


def test_a_configuration_is_refused_at_its_key() -> None:
    """At validation, for any name of the class."""
    for class_name in ("Sql", "icefloe.transforms.Sql"):
        raw = {
            "name": "alice-1",
            "topics": "t",
            "iceberg.tables": "db.t",
            "transforms": "q",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1:1",
            "transforms.q.type": class_name,
            "transforms.q.columns": "id BIGINT",
            "transforms.q.query": "SELECT id FROM records JOIN p ON p.i = id",
            "transforms.q.table.p": "bob.places",
        }
        assert parse(raw).static_tables.refusal("bob.places") is None
        node = {f"{STATIC_TABLES_PREFIX}alice-*": "geo.*"}
        with pytest.raises(InvalidConfigError) as refused:
            parse(raw, node=node)
        assert list(refused.value.errors) == ["transforms.q.table.p"]
        granted = parse({**raw, "transforms.q.table.p": "geo.places"}, node=node)
        assert granted.static_tables.refusal("bob.places") is not None

"""Queries of ``Sql``, attacked through REST: no environment, no files, no other tenant's tables."""

from __future__ import annotations

import pytest

from tests.support.attacked_stack import CANARIES, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
TRANSFORM = "transforms.q."


def _config(attacked: AttackedStack, topic: str, query: str, **more: str) -> dict[str, str]:
    config = attacked.connector(
        topics=topic, iceberg__tables="alice.sql", iceberg__tables__auto_create_enabled="true"
    )
    options = {"type": "icefloe.transforms.Sql", "columns": "id BIGINT", "query": query, **more}
    return config | {"transforms": "q", **{TRANSFORM + k: v for k, v in options.items()}}


def test_queries_with_access_to_files_or_addresses_are_refused(attacked: AttackedStack) -> None:
    """Functions and subqueries that read files, addresses or the node are a 400."""
    topic, shadow = attacked.topic("alice-sql"), attacked.stack.state_dir / "shadow.csv"
    shadow.write_text(f"{CANARIES['shadow']},second\n1,2\n")
    items = [
        f"from_xml('<a/>', 'x INT', map('rowValidationXSDPath', '{shadow}')).x",
        "reflect('java.lang.System', 'getenv', 'NODE_HIDDEN_CANARY')",
        "xpath_string('<a/>', 'a')",
        "current_user()",
        "input_file_name()",
        f"(SELECT first(_c0) FROM csv.`{shadow}`)",
    ]
    queries = [f"SELECT id, {item} AS x FROM records" for item in items]
    queries += [
        f"SELECT * FROM csv.`{shadow}`",
        "SET spark.sql.variable.substitute=true",
        "SELECT id FROM records; DROP TABLE bob.orders",
        f"SELECT id FROM records WHERE {'(' * 5_000}id",
        "SELECT CAST(id AS " + "ARRAY<" * 4_000 + "INT FROM records",
        "SELECT '" * 10_000 + "' FROM records",
    ]
    for query in queries:
        config = _config(attacked, topic, query)
        answer = attacked.alice.validate({**config, "name": "alice-sql"})
        assert answer.status_code == 200
        assert answer.json()["error_count"] >= 1, query[:200]
        assert attacked.alice.create("alice-sql", config).status_code == 400, query[:200]
    attacked.assert_canaries_nowhere()


def test_a_subquery_that_only_spark_detects_fails_its_task(attacked: AttackedStack) -> None:
    """Its trace has no line of the file, and is the same if the file does not exist."""
    topic, shadow = attacked.topic("alice-subquery"), attacked.stack.state_dir / "shadow.csv"
    shadow.write_text(f"{CANARIES['shadow']},second\n1,2\n")
    files = {"alice-subquery-0": shadow, "alice-subquery-1": shadow.with_name("absent.csv")}
    for name, file in files.items():
        query = f"SELECT id FROM records WHERE EXISTS(FROM csv.`file:{file}` WHERE nothing = 1)"
        answer = attacked.alice.create(name, _config(attacked, topic, query))
        assert answer.status_code == 201, answer.text
    traces = [
        attacked.trace(name).replace(file.name, "").replace(name, "")
        for name, file in files.items()
    ]
    attacked.assert_canaries_nowhere(names=tuple(files))
    for name in files:
        assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204
    assert "sql_query" in traces[0]
    assert traces[0].splitlines()[0] == traces[1].splitlines()[0]


def test_only_static_tables_of_the_operators_list_can_be_joined(attacked: AttackedStack) -> None:
    """No table of another tenant, no data file and no folder of the node."""
    topic = attacked.topic("alice-joined")
    query = "SELECT r.id, s.id AS other FROM records r LEFT JOIN s ON r.id = s.id"
    places = ("bob.orders", "/etc", str(attacked.stack.state_dir), "s3://bucket/bob")
    for place in places:
        config = _config(attacked, topic, query, **{"table.s": place})
        answer = attacked.alice.validate({**config, "name": "alice-joined"}).json()
        assert answer["error_count"] >= 1, place
        assert attacked.alice.create("alice-joined", config).status_code == 400, place


def test_variables_are_plain_text_in_rows(attacked: AttackedStack) -> None:
    """References to environment, JVM and Spark settings."""
    topic, name = attacked.topic("alice-variables"), "alice-variables"
    for hidden in ("env:NODE_HIDDEN_CANARY", "env:AWS_SESSION_TOKEN"):
        query = f"SELECT id, '${{{hidden}}}' AS v FROM records"
        assert attacked.alice.create(name, _config(attacked, topic, query)).status_code == 400
    key = "spark.hadoop.fs.s3a.secret.key"
    variables = ("system:user.home", f"spark:{key}", key, "sparkconf:" + key)
    texts = [f"'${{{variable}}}' AS v{n}" for n, variable in enumerate(variables)]
    query = f"SELECT id, {', '.join(texts)} FROM records"
    answer = attacked.alice.create(name, _config(attacked, topic, query))
    assert answer.status_code == 201, answer.text
    attacked.produce(topic, {"id": 1})
    (row,) = attacked.rows("alice.sql", 1, name)
    assert [row[f"v{n}"] for n in range(len(variables))] == [f"${{{v}}}" for v in variables]
    attacked.assert_canaries_nowhere(str(row), names=(name,))
    assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204


def test_a_slow_pattern_of_a_tenant_fails_only_its_task(attacked: AttackedStack) -> None:
    """Java would match the text for hours; rows of another tenant are written."""
    topic, flow = attacked.topic("alice-pattern"), attacked.topic("bob-pattern")
    query = "SELECT id FROM records WHERE device RLIKE '(?:(?:a+)+){2,}b'"
    config = _config(attacked, topic, query, columns="id BIGINT, device STRING")
    assert attacked.alice.create("alice-pattern", config).status_code == 201
    bobs = attacked.connector(topics=flow, iceberg__tables="bob.pattern")
    bobs |= {"iceberg.tables.auto-create-enabled": "true"}
    assert attacked.bob.create("bob-pattern", bobs).status_code == 201
    for number in range(8):
        attacked.produce(topic, {"id": number, "device": "a" * 60})
    attacked.produce(flow, {"id": 1})
    assert "sql_failed" in attacked.trace("alice-pattern")
    assert len(attacked.rows("bob.pattern", 1, "bob-pattern")) == 1
    assert attacked.alice.call("DELETE", "/connectors/alice-pattern").status_code == 204
    assert attacked.bob.call("DELETE", "/connectors/bob-pattern").status_code == 204

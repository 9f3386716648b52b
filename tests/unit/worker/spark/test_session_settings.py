"""Settings of the Spark session: defaults, those of a node, and those that no node changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.errors import ConfigError
from worker.spark.session_settings import settings


def test_node_properties_win_over_the_session_defaults(tmp_path: Path) -> None:
    """``spark.*`` of the node is used unchanged; its other properties are not."""
    session_settings = settings(
        {"spark.driver.memory": "4g", "sasl.jaas.config": "canary"},
        folder=tmp_path,
        scratch=tmp_path / "tmp",
        jars=[tmp_path / "a.jar"],
        cores=3,
    )
    assert session_settings["spark.driver.memory"] == "4g"
    assert session_settings["spark.master"] == "local[3,3]"
    assert session_settings["spark.ui.enabled"] == "false"
    assert "canary" not in str(session_settings.values())


def test_sessions_authenticate(tmp_path: Path) -> None:
    """Remote masters also encrypt, and need a configured secret."""

    def made(**given: str) -> dict[str, str]:
        node = {f"spark.{key.replace('_', '.')}": value for key, value in given.items()}
        session_settings = settings(node, folder=tmp_path, scratch=tmp_path, jars=[], cores=1)
        names = ("spark.authenticate", "spark.network.crypto.enabled")
        return {name: session_settings[name] for name in names if name in session_settings}

    local = {"spark.authenticate": "true"}
    remote = {**local, "spark.network.crypto.enabled": "true"}
    assert made() == made(master="local[*]") == made(master=" local[2,3]") == local
    assert made(master="yarn") == made(master="k8s://https://host") == remote
    assert made(master="spark://host:7077", authenticate_secret="x") == remote
    assert made(master="spark://host:7077", authenticate="false") == {"spark.authenticate": "false"}
    with pytest.raises(ConfigError, match=r"set spark\.authenticate\.secret") as refused:
        made(master="spark://host:7077")
    assert refused.value.code == "spark_secret_missing"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local[*]", "local[*,3]"),
        ("local[2]", "local[2,3]"),
        ("local", "local[1,3]"),
        (" local[ 4 ] ", "local[4,3]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
    ],
)
def test_a_local_master_retries_a_failed_task(tmp_path: Path, given: str, used: str) -> None:
    """Spark's default is one attempt; a configured number is kept."""
    node = {"spark.master": given, "spark.authenticate.secret": "x"}
    session_settings = settings(node, folder=tmp_path, scratch=tmp_path, jars=[], cores=1)
    assert session_settings["spark.master"] == used


def test_java_options_of_a_node_keep_the_temporary_folder(
    tmp_path: Path,
) -> None:
    """They replace the defaults or are appended."""
    given = {"spark.driver.extraJavaOptions": "-Da=1", "spark.driver.defaultJavaOptions": "-Db=2"}
    session_settings = settings(given, folder=tmp_path, scratch=tmp_path / "tmp", jars=[], cores=1)
    assert session_settings["spark.driver.extraJavaOptions"] == "-Da=1"
    default = session_settings["spark.driver.defaultJavaOptions"]
    assert default.startswith(f'"-Djava.io.tmpdir={tmp_path}/tmp" ')
    assert default.endswith(" -Db=2")


def test_a_local_session_has_the_kafka_source_on_its_class_path(tmp_path: Path) -> None:
    """A class archive can then contain it; a remote master receives it with ``spark.jars``."""
    jars = [Path("/j/a.jar"), Path("/j/b.jar")]

    def made(**node: str) -> dict[str, str]:
        return settings(node, folder=tmp_path, scratch=tmp_path, jars=jars, cores=1)

    local = made()
    assert local["spark.driver.extraClassPath"] == "/j/a.jar:/j/b.jar"
    assert "spark.jars" not in local
    own = made(**{"spark.driver.extraClassPath": "/own/*", "spark.jars": "/own/c.jar"})
    assert own["spark.driver.extraClassPath"] == "/own/*:/j/a.jar:/j/b.jar"
    assert own["spark.jars"] == "/own/c.jar"
    remote = made(**{"spark.master": "spark://h:7077", "spark.authenticate": "false"})
    assert remote["spark.jars"] == "/j/a.jar,/j/b.jar"
    assert "spark.driver.extraClassPath" not in remote


def test_java_options_of_a_node_keep_the_archive_of_classes(tmp_path: Path) -> None:
    """The options of the class archive stay, unless the node replaces them."""
    given = {"spark.driver.extraJavaOptions": "-Da=1", "spark.driver.defaultJavaOptions": "-Db=2"}
    options = ["-XX:SharedArchiveFile=/a.jsa"]
    session_settings = settings(
        given, folder=tmp_path, scratch=tmp_path, jars=[], cores=1, java_options=options
    )
    assert session_settings["spark.driver.defaultJavaOptions"].endswith(
        "-XX:SharedArchiveFile=/a.jsa -Db=2"
    )

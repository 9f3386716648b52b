"""Connectors from files: shapes, texts, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connect.cli.gitops.connector_files import ConnectorFileError, read, read_one

FLAT = 'name: b\nconnector.class: IcebergSink\ntasks.max: 2\nflag: yes\nnumber: 1e3\nempty: ""\n'


def test_files_may_be_wrapped_or_flat_json_or_yaml(tmp_path: Path) -> None:
    """In folders, by name; values are those of the file."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.json").write_text(
        '{"name":"a","initial_state":"PAUSED","config":'
        '{"connector.class":"IcebergSink","tasks.max":2,"x":1.50,"y":true}}'
    )
    (tmp_path / "b.yml").write_text(FLAT)
    (tmp_path / "c.yaml").write_text("name: c\nconfig: {connector.class: IcebergSink, on: off}\n")
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "README.md").write_text("no connector")
    a, b, c = read([tmp_path])
    assert (a.name, a.initial_state) == ("a", "PAUSED")
    assert a.config == {
        "name": "a",
        "connector.class": "IcebergSink",
        "tasks.max": "2",
        "x": "1.50",
        "y": "true",
    }
    assert b.config == {
        "name": "b",
        "connector.class": "IcebergSink",
        "tasks.max": "2",
        "flag": "yes",
        "number": "1e3",
        "empty": "",
    }
    assert c.config["on"] == "off"


def test_the_line_for_editors_is_no_key(tmp_path: Path) -> None:
    """``$schema`` in both forms; it reaches no node."""
    link = '"$schema": "./connector.schema.json"'
    (tmp_path / "a.json").write_text(
        f'{{{link}, "name": "a", "config": {{"connector.class": "IcebergSink"}}}}'
    )
    (tmp_path / "b.json").write_text(f'{{{link}, "name": "b", "connector.class": "IcebergSink"}}')
    for desired in read([tmp_path]):
        assert desired.config == {"name": desired.name, "connector.class": "IcebergSink"}


def test_a_file_may_contain_several_connectors(tmp_path: Path) -> None:
    """A JSON list, or several YAML documents."""
    listed = [{"name": n, "connector.class": "IcebergSink"} for n in ("x", "y")]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    (tmp_path / "docs.yaml").write_text(f"---\n{FLAT}---\n{FLAT.replace('name: b', 'name: d')}")
    assert [desired.name for desired in read([tmp_path])] == ["b", "d", "x", "y"]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", "{", "is not valid JSON"),
        ("a.json", '{"name": "a",\n "topics": "t",\n}', "line 2, column 15: remove the comma"),
        ("a.json", '{"name": ["a",  ] }', "line 1, column 14: remove the comma"),
        ("a.json", '{"name": "a"\n "topics": "t"}', "line 2, column 2: a comma is missing"),
        ("a.json", '{"name" "a"}', "line 1, column 9: a colon is missing"),
        ("a.json", "{'name': 'a'}", "line 1, column 2: a key in double quotes is missing"),
        ("a.json", '{"name": a}', "line 1, column 10: a value is missing"),
        ("a.yaml", "a: [", "is not valid YAML"),
        ("a.yaml", "a: 1\na: 2", "'a' is duplicate"),
        ("a.json", '{"name":"a","name":"b"}', "'name' is duplicate"),
        ("a.json", '"text"', "an object with keys"),
        ("a.json", "[1]", "an object with keys"),
        ("a.json", '{"config":{}}', 'needs a "name"'),
        ("a.json", '{"name":"a","config":{}}', "no connector.class"),
        ("a.json", '{"name":"a","config":{"name":"b"}}', "its config has the name 'b'"),
        ("a.json", '{"name":"a","config":{},"tasks":[]}', "move 'tasks' into config"),
        ("a.json", '{"name":"a","config":{},"initial_state":"ON"}', "initial_state is 'ON'"),
        ("a.json", '{"name":"a","connector.class":null}', "connector.class is a null"),
        ("a.json", '{"name":"a","connector.class":["x"]}', "connector.class is a list"),
        ("a.json", '{"name":"a","iceberg.catalog.token":"********"}', "token is masked"),
        ("a.yaml", "name: a\nuri: http://u:********@h", "uri is masked"),
        ("a.yaml", "name: a\nconnector.class: {b: c}", "connector.class is a object"),
        ("a.yaml", "!!python/object/apply:os.system [ls]", "an object with keys"),
        ("a.yaml", "? [1]\n: 2", "is not valid YAML"),
        ("a.json", "[" * 100_000, "is not valid JSON"),
        ("a.yaml", "\x00", "is not valid YAML"),
        ("a.txt", "", "cannot be read|no connector|an object with keys"),
    ],
)
def test_an_error_names_the_file(tmp_path: Path, name: str, content: str, text: str) -> None:
    """Every error says which file, and what in it."""
    (tmp_path / name).write_text(content)
    with pytest.raises(ConnectorFileError, match=text) as refused:
        read([tmp_path / name])
    assert name in str(refused.value)


def test_a_command_needs_one_connector(tmp_path: Path) -> None:
    """The only one, the one with the name, or one that gets the given name."""
    one, two, bare = (tmp_path / n for n in ("one.yaml", "two.yaml", "bare.json"))
    one.write_text(FLAT)
    two.write_text(f"---\n{FLAT}---\n{FLAT.replace('name: b', 'name: d')}")
    bare.write_text('{"config":{"connector.class":"IcebergSink"}}')
    assert (read_one(one).name, read_one(two, "d").name) == ("b", "d")
    assert read_one(bare, unnamed="x").config == {"name": "x", "connector.class": "IcebergSink"}
    assert read_one(one, "b", unnamed="b").name == "b"
    for file, name, text in (
        (one, "d", "one connector 'd'; it contains b"),
        (two, None, "one connector; it contains b, d"),
        (bare, None, 'needs a "name"'),
        (tmp_path, None, "is not a file"),
    ):
        with pytest.raises(ConnectorFileError, match=text):
            read_one(file, name)


def test_a_name_in_two_files_is_an_error(tmp_path: Path) -> None:
    """Both files are named."""
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(FLAT)
    with pytest.raises(ConnectorFileError, match=r"'b' is in .*one\.yaml and in .*two\.yaml"):
        read([tmp_path])


def test_paths_without_connectors_are_errors(tmp_path: Path) -> None:
    """A missing path, bytes that are no text, an empty folder."""
    with pytest.raises(ConnectorFileError, match="neither a file nor a folder"):
        read([tmp_path / "no"])
    with pytest.raises(ConnectorFileError, match="no connector in"):
        read([tmp_path])
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConnectorFileError, match="cannot be read"):
        read([tmp_path])


@pytest.mark.parametrize(
    "content",
    [
        '{"$schema":"s.json","name":"a","config":{"connector.class":"IcebergSink"}}',
        '{"$schema":"s.json","name":"a","connector.class":"IcebergSink"}',
    ],
)
def test_the_schema_that_a_file_names_is_for_editors(tmp_path: Path, content: str) -> None:
    """It is no key of the connector, in either form."""
    (tmp_path / "a.json").write_text(content)
    [found] = read([tmp_path])
    assert found.config == {"name": "a", "connector.class": "IcebergSink"}

"""JSON on pages: all of it parses, and Icefloe accepts what configures a connector.

Rules of this file:
- A block with some keys of a connector is added to the page's first whole connector, or else to a
  small one.
- Icefloe's own offline validation decides, with warnings as errors. Placeholders are allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from connect.errors import ExitStatus
from tests.support.command_line import icefloe

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "compose").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SMALL = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
}
OF_USERS = {"Separated", "FixedWidth", "Hashed"}
"""Classes that pages show how to write; nothing has installed them."""
OF_THE_JAVA_SINK = "iceberg.catalog.jdbc.schema-version"
"""A key without effect that the Java sink of a tutorial needs."""
_BLOCK = re.compile(r"^( *)```json\n(?P<body>.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^cat > \S+\.json <<'?(\w+)'?\n(?P<body>.*?)^\1$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(
    r"(connector\.class|topics(\.regex)?|transforms|predicates|tasks\.max)$"
    r"|(iceberg|icefloe|transforms|predicates|errors|(key|value|header)\.converter)\."
    r"|(key|value|header)\.converter$|(consumer|producer|admin)\.override\."
)


class Document(NamedTuple):
    """A JSON document of a page, with the line at which it begins."""

    line: int
    text: str


def documents(text: str) -> Iterator[Document]:
    """Yield the blocks of JSON and the JSON files that commands write."""
    for pattern in (_BLOCK, _FILE):
        for found in pattern.finditer(text):
            yield Document(text.count("\n", 0, found.start("body")) + 1, found["body"])


def configuration(value: Any) -> dict[str, Any] | None:
    """Return the keys of a connector; None for other JSON."""
    if not isinstance(value, dict):
        return None
    config = value.get("config", value)
    is_connector = isinstance(config, dict) and any(map(_KEY.match, config))
    return config if is_connector else None


def connectors(page: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and whole configuration of each connector of a page."""
    name = page.relative_to(ROOT).as_posix()
    parsed = [(line, json.loads(text)) for line, text in documents(page.read_text("utf-8"))]
    configs = [(line, config) for line, value in parsed if (config := configuration(value))]
    whole = next((config for _, config in configs if "connector.class" in config), SMALL)
    for line, config in configs:
        base = {} if "connector.class" in config else dict(whole)
        if "iceberg.tables.name-template" in config:
            base.pop("iceberg.tables", None)
        if not OF_USERS & set(map(str, config.values())):
            yield f"{name}:{line}", {**base, **config}


def test_documents_are_found_with_their_lines() -> None:
    """Blocks, also in lists, and files; a block of another language is none."""
    page = 'a\n```json\n{"a": 1}\n```\n  ```json\n  [2]\n  ```\n```bash\n'
    page += "cat > o.json <<EOF\n3\nEOF\n```"
    assert [(line, text.strip()) for line, text in documents(page)] == [
        (3, '{"a": 1}'),
        (6, "[2]"),
        (10, "3"),
    ]


def test_every_json_document_parses() -> None:
    """A user can copy a whole block into a file."""
    wrong = []
    for page in PAGES:
        for line, text in documents(page.read_text("utf-8")):
            try:
                json.loads(text)
            except ValueError as error:
                wrong.append(f"{page.relative_to(ROOT)}:{line}: {error}")
    assert not wrong, "\n".join(wrong)


def test_every_connector_is_valid(tmp_path: Path) -> None:
    """Whole connectors and single keys, as ``icefloe validate`` reads them."""
    found = [connector for page in PAGES for connector in connectors(page)]
    assert len(found) > 60
    for place, config in found:
        name = place.replace("/", ".")
        (tmp_path / f"{name}.json").write_text(json.dumps({**config, "name": name}))
    done = icefloe("validate", "-f", str(tmp_path))
    always = OF_THE_JAVA_SINK, "not asked: "
    said = [x for x in done.stderr.splitlines() if not any(part in x for part in always)]
    assert (done.status, said) == (ExitStatus.DONE, [])


def test_no_connector_is_outside_a_checked_block() -> None:
    """A member of a connector's JSON is in a block of JSON. Tutorials run as tests."""
    member = re.compile(r"^[\s{]*\"(?P<key>[\w.-]+)\":", re.MULTILINE)
    outside = []
    for page in set(PAGES) - set((ROOT / "docs/tutorials").iterdir()):
        rest = _BLOCK.sub("", page.read_text("utf-8"))
        outside += [
            f"{page.relative_to(ROOT)}: {found['key']}"
            for found in member.finditer(rest)
            if _KEY.match(found["key"])
        ]
    assert not outside, "\n".join(outside)

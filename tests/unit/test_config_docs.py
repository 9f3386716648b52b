"""Every key is documented, and used."""

from __future__ import annotations

from pathlib import Path

from connect.config.declarations import CONNECTOR_KEYS, FRAMEWORK_KEYS, TABLE_KEYS
from connect.config.docs import render
from connect.config.node_keys import NODE_KEYS

ROOT = Path(__file__).parents[2]
DECLARING = {"framework_keys.py", "iceberg_keys.py", "node_keys.py", "docs.py"}


def sources() -> str:
    """All product code except the declarations."""
    return "\n".join(
        path.read_text()
        for package in ("connect", "worker", "coordinator")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in DECLARING
    )


def test_the_page_is_current() -> None:
    """``docs/configuration.md`` is what ``python -m connect.config.docs`` writes."""
    assert (ROOT / "docs/configuration.md").read_text() == render()


def test_every_key_has_a_sentence() -> None:
    """One line, no more."""
    for key in (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *TABLE_KEYS, *NODE_KEYS):
        assert key.doc.endswith("."), key.name
        assert "\n" not in key.doc, key.name


def test_every_key_is_used() -> None:
    """A key that is declared has an effect, or says that it has none."""
    code = sources()
    kinds = ("key.converter", "value.converter", "header.converter")  # read as f"{kind}.converter"
    unused = [
        key.name
        for key in (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *TABLE_KEYS, *NODE_KEYS)
        if key.java_only is None and key.name not in kinds and f'"{key.name}"' not in code
    ]
    assert unused == []

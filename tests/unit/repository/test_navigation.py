"""The navigation of the site has the groups of the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[3] / "docs"
SITE: dict[str, Any] = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text("utf-8"))


def section(title: str) -> list[dict[str, Any]]:
    """Return the entries of a section of the navigation."""
    return next(entry[title] for entry in SITE["nav"] if title in entry)


def pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of a section and of its inner sections, in order."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from pages(target)


def groups_of_the_index() -> dict[str, list[str]]:
    """Return the how-to pages that the index lists, by group."""
    table = (DOCS / "index.md").read_text("utf-8").partition("\n## How-to guides\n")[2]
    rows = re.findall(r"^\| (\w+) \|(.*)\|$", table, re.MULTILINE)
    return {group: re.findall(r"\]\((how-to/[\w/.-]+)\)", links) for group, links in rows}


def test_how_to_groups_are_those_of_the_index() -> None:
    """Same groups, same pages, same order; pages of one service are below the page of all."""
    groups = {
        name.lower(): entries for each in section("How-to guides") for name, entries in each.items()
    }
    assert all(isinstance(entries, list) for entries in groups.values())
    listed = {
        name: [
            page for page in pages(entries) if page.count("/") == 1 or page.endswith("README.md")
        ]
        for name, entries in groups.items()
    }
    assert listed == groups_of_the_index()
    assert list(listed) == list(groups_of_the_index())


def test_every_how_to_is_in_the_navigation_once() -> None:
    """No page is without a group."""
    listed = list(pages(section("How-to guides")))
    assert sorted(listed) == sorted(
        page.relative_to(DOCS).as_posix() for page in (DOCS / "how-to").rglob("*.md")
    )


def test_pages_embed_nothing_of_other_hosts() -> None:
    """The site is complete when it is opened from a folder. Links may lead to other hosts."""
    embedded = re.compile(r"!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b[^>]*https?:")
    assert [page for page in DOCS.rglob("*.md") if embedded.search(page.read_text("utf-8"))] == []

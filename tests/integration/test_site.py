"""The documentation as a site, opened from a folder in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import expect

from tests.support.browsing import BrowserVisit
from tests.support.sources import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two pages with the configuration of the project."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    (folder / "docs" / "guide").mkdir()
    (folder / "docs" / "index.md").write_text("# Home\n\nThe first page.\n")
    (folder / "docs" / "guide" / "lag.md").write_text("# Lag\n\nA zebra waits for its commit.\n")
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(folder / "docs"),
        site_dir=str(folder / "site"),
    )
    config.nav = None
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder / "site"


def test_search_works_without_a_server(site: Path, visit: Callable[..., BrowserVisit]) -> None:
    """On a page in a folder, too. Nothing is fetched from another host."""
    visitor = visit("about:blank")
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    for start in ("index.html", "guide/lag.html"):
        visitor.page.goto((site / start).as_uri())
        visitor.page.keyboard.press("/")
        expect(visitor.page.locator(".md-search__input")).to_be_focused()
        visitor.page.keyboard.type("zebra")
        found = visitor.page.locator(".md-search-result__link").first
        expect(found).to_have_attribute("href", (site / "guide/lag.html").as_uri())
    assert asked
    assert [url for url in asked if not url.startswith(site.as_uri())] == []
    assert visitor.complaints == []

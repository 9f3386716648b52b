"""The page of error codes that nodes serve, and the guide that it is made of."""

from __future__ import annotations

import re

from connect.generated_docs.recovery_page import GUIDE, page
from tests.support.sources import ROOT

SERVED = ROOT / "connect" / "node" / "rest" / "ui" / "recovery.html"


def test_the_page_is_the_one_of_the_guide() -> None:
    """``make docs`` writes it."""
    assert SERVED.read_text("utf-8") == page((ROOT / GUIDE).read_text("utf-8"))


def test_each_code_of_the_guide_has_a_place_of_its_own() -> None:
    """Links to it have the code alone; nothing of another host is loaded or linked."""
    text = SERVED.read_text("utf-8")
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {"catalog_unavailable", "source_data_lost", "config", "batch_timeout"} <= set(ids)
    assert not re.findall(r'(?:href|src)="(?!/ui)', text)


def test_markup_of_the_guide_is_text_or_code() -> None:
    """Links lose their target, and characters of HTML are escaped."""
    made = page("## A & b\n\n| `a_b`, `c` | x < `y<z>` | [do](there.md#it) it |\n|---|---|---|\n")
    assert "<h3>A &amp; b</h3>" in made
    assert '<code id="a_b">a_b</code> <code id="c">c</code>' in made
    assert "<td>x &lt; <code>y&lt;z&gt;</code></td><td>do it</td>" in made

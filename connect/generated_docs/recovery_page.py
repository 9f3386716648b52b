"""The page of error codes that a node serves at ``/ui/recovery.html``; written by ``make docs``.

The status page links to it: a node may run where no documentation can be reached.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Final

GUIDE: Final = Path("docs/how-to/recovery.md")
_HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Icefloe: recover from an error</title>
  <link rel="icon" href="/ui/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/ui/status.css">
</head>
<body>
  <header><h1><a href="/ui">Icefloe</a></h1></header>
  <main class="codes">
    <h2>Recover from an error</h2>
    <p>A link on the status page opens the row of its code. The guide "Recover from an error" of the
      documentation describes the steps.</p>
"""
_TAIL: Final = "  </main>\n</body>\n</html>\n"
_ROW: Final = re.compile(r"^\| (`[a-z][^|]*) \| (.+) \|$")
_CODE: Final = re.compile(r"`([a-z][a-z_0-9]*)`")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def page(guide: str) -> str:
    """Return the page.

    Args:
        guide: text of the guide; its tables have codes in the first column.
    """
    parts = [_HEAD]
    for section in re.split(r"^## ", guide, flags=re.MULTILINE):
        title, _, rest = section.partition("\n")
        matches = filter(None, map(_ROW.fullmatch, rest.splitlines()))
        if rows := "".join(_row(each[1], each[2].split(" | ")) for each in matches):
            parts.append(f"    <h3>{_text(title)}</h3>\n    <table>\n{rows}    </table>\n")
    return "".join((*parts, _TAIL))


def _row(first: str, others: list[str]) -> str:
    anchors = "".join(f'<code id="{code}">{code}</code> ' for code in _CODE.findall(first))
    cells = "".join(f"<td>{_text(other)}</td>" for other in others)
    return f'      <tr><th scope="row">{anchors.strip()}</th>{cells}</tr>\n'


def _text(markdown: str) -> str:
    """Return a text with its code, without its links: their targets are not served."""
    plain = html.escape(_LINK.sub(r"\1", markdown), quote=False)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", plain)


if __name__ == "__main__":
    sys.stdout.write(page(GUIDE.read_text("utf-8")))

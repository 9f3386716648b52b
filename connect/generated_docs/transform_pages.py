"""``docs/reference/transforms``, a page each; written by ``make docs``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from connect.generated_docs.configuration_page import key_table
from connect.records.transforms.predicates import PREDICATES
from connect.records.transforms.transform import Declaration
from connect.records.transforms.transform_classes import DECLARATIONS

DEFAULT_PATH: Final = Path("docs/reference/transforms")
_WRITTEN: Final = "Written by `make docs` from the declarations; do not edit.\n"
_INDEX: Final = """\
# Transformations

A connector's `transforms` lists aliases; each is configured below `transforms.<alias>.` with its
`type` and its own keys. They run in the order of the list, between the converters and routing.
`transforms.<alias>.predicate` names a predicate, listed in `predicates` and configured below
`predicates.<alias>.`: the transformation then applies only to records for which it is true, with
`negate` only to the others.

What a transformation drops is read and counted as dropped. What it refuses has the stage
`TRANSFORMATION`: with `errors.tolerance=none` the task fails, else the record is a dead letter.

Class names of Kafka, of the Iceberg sink (`org.apache.iceberg...` and `io.tabular...`) and our own
are taken as existing configurations write them. Those marked *columns* change whole blocks of
records at once, Spark runs those marked *Spark*; the others go record by record, which is slower:
see [performance](../../evidence/performance.md). [Your own](custom.md) are Python functions.
"""


_HOW: Final = {
    "columns": "Runs on columns where the records have a column form, else record by record.\n",
    "records": "Runs record by record.\n",
    "Spark": "Runs in Spark, over each micro-batch.\n",
}


def _form(declared: Declaration) -> str:
    if declared.is_query:
        return "Spark"
    return "columns" if declared.is_column else "records"


def page(declared: Declaration) -> str:
    """The page of one transformation."""
    classes = ", ".join(f"`{name}`" for name in declared.class_names)
    parts = [f"# {declared.name}\n", _WRITTEN, declared.doc + "\n", f"Class: {classes}.\n"]
    if declared.also:
        also = ", ".join(f"`{package}{declared.name}`" for package in declared.also)
        parts.append(f"Also: {also}.\n")
    parts.append(_HOW[_form(declared)])
    if declared.differs:
        parts.append(f"Other than in Java: {declared.differs}\n")
    if declared.keys or declared.families:
        parts.append("## Keys, below `transforms.<alias>.`\n")
    if declared.keys:
        parts.append(key_table(declared.keys))
    parts += [f"`{family}<...>`: {what}\n" for family, what in declared.families.items()]
    parts += ["## Example\n", _example(declared)]
    return "\n".join(parts)


def _example(declared: Declaration) -> str:
    example = declared.example
    config = {
        "transforms": "a",
        "transforms.a.type": declared.class_names[-1],
        **{f"transforms.a.{name}": value for name, value in example.config.items()},
    }
    parts = [_json(config)]
    if example.says:
        parts.append(example.says + "\n")
    parts += ["makes of the record\n", _json(example.before)]
    if example.after is None:
        parts.append("nothing: it is dropped.\n")
    elif isinstance(example.after, Mapping):
        parts += ["this\n", _json(example.after)]
    else:
        parts += ["these\n", *(_json(record) for record in example.after)]
    return "\n".join(parts)


def _json(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```\n"


def index() -> str:
    """The list of all transformations and predicates."""
    lines = ["| transformation | | what it does |", "|---|---|---|"]
    for declared in DECLARATIONS:
        first = declared.doc.split(". ")[0].rstrip(".") + "."
        lines.append(f"| [{declared.name}]({declared.name}.md) | {_form(declared)} | {first} |")
    parts = [_INDEX, "\n".join(lines) + "\n", "## Predicates\n"]
    for predicate in PREDICATES:
        parts.append(f"### {predicate.name}\n")
        parts.append(f"`{predicate.class_name}`: {predicate.doc}\n")
        if predicate.keys:
            parts.append(key_table(predicate.keys))
    parts.append(_WRITTEN)
    return "\n".join(parts)


def pages() -> Mapping[str, str]:
    """Every page by its file name."""
    found = {f"{declared.name}.md": page(declared) for declared in DECLARATIONS}
    return {"README.md": index(), **found}


def main(arguments: list[str]) -> None:
    """Write the pages."""
    folder = Path(arguments[0]) if arguments else DEFAULT_PATH
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

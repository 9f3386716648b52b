"""Rows of the tables of docs/reference/partitions.md, tried: terms, names, types and refusals."""

from __future__ import annotations

import re

import pytest
from pyiceberg.types import IcebergType, NestedField

from connect.errors import ConfigError
from connect.records.tables.partition_spec import check_terms, parse_terms
from connect.validation.key_checks import split_terms
from tests.support.sources import ROOT

PAGE = (ROOT / "docs/reference/partitions.md").read_text("utf-8")
TYPES = {"decimal": "decimal(9, 2)", "fixed": "fixed[4]"}
ALL_TYPES = (
    *("boolean", "int", "long", "float", "double", "decimal", "date", "time"),
    *("timestamp", "timestamptz", "string", "uuid", "fixed", "binary"),
)


def rows(title: str) -> list[tuple[str, ...]]:
    """Return the cells of a section's table, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines[2:]]


def type_named(name: str) -> IcebergType:
    """Return a type as the page writes it."""
    field = {"id": 1, "name": "c", "required": False, "type": TYPES.get(name, name)}
    return NestedField.model_validate(field).field_type


@pytest.mark.parametrize(("terms", "_", "types", "field"), rows("Terms"))
def test_a_term_has_the_types_and_the_name_of_the_page(
    terms: str, _: str, types: str, field: str
) -> None:
    """Each spelling."""
    for text in re.findall(r"`([^`]+)`", terms):
        [term] = parse_terms(split_terms(text))
        assert f"`{term.column}{term.suffix}`" == field
        taken = [name for name in ALL_TYPES if term.transform.can_transform(type_named(name))]
        assert taken == types.split(", ")


@pytest.mark.parametrize(("term", "_", "instead"), rows("Refused terms"))
def test_a_refused_term_is_refused_and_its_replacement_is_not(
    term: str, _: str, instead: str
) -> None:
    """As validation checks it."""
    with pytest.raises(ConfigError) as refused:
        check_terms(split_terms(term.strip("`")))
    assert refused.value.code == "partition_spec"
    check_terms(split_terms(instead.strip("`")))


def test_the_page_has_every_table() -> None:
    """A renamed section would leave its rows without a test."""
    assert (len(rows("Terms")), len(rows("Refused terms"))) == (7, 10)

"""The pages of the converters: written from their declarations, their examples true."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from connect.config.connector import ConverterConfig
from connect.generated_docs.converter_pages import EXAMPLES, ConverterExample, render
from connect.model.records import Struct
from connect.records.converters import converter
from connect.validation.plugins import REGISTRY_CONVERTERS
from tests.support.fakes.schema_registry import SchemaRegistryServer

FOLDER = Path(__file__).parents[2] / "docs/reference/converters"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.page)
def test_pages_are_up_to_date(example: ConverterExample) -> None:
    """`make docs` would change nothing."""
    assert (FOLDER / example.page).read_text("utf-8") == render(example)


def test_every_converter_with_schemas_has_a_page() -> None:
    """Every declared option is explained."""
    assert REGISTRY_CONVERTERS.keys() <= {example.class_name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.page)
def test_examples_of_the_pages_are_correct(example: ConverterExample) -> None:
    """The record of the page becomes the value of the page."""
    if example.schema is None:
        assert displayed(converted(example, example.options)) == example.value
        return
    with SchemaRegistryServer() as server:
        assert server.register("t-value", example.schema, example.kind) == 1
        options = {**example.options, "schema.registry.url": server.url}
        assert displayed(converted(example, options)) == example.value


def converted(example: ConverterExample, options: Mapping[str, str]) -> Any:
    built = converter(ConverterConfig(example.class_name, options), "value")
    return built.to_connect("t", (), example.record)[1]


def displayed(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: displayed(inner) for name, inner in value.values.items()}
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value

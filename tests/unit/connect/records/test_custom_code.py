"""Which connectors run code of installed packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connect.config.connector import ConverterConfig, TransformConfig
from connect.records.converters import custom_converters
from connect.records.custom_code import has_custom_code
from connect.records.transforms import custom_transforms
from tests.differential.support import config
from tests.support.entry_points import install


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget the packages that a test installs."""
    yield
    custom_converters.installed.cache_clear()
    custom_transforms.installed.cache_clear()


def test_built_in_code_is_not_custom() -> None:
    """Converters of this project."""
    assert not has_custom_code(config())


@pytest.mark.parametrize("side", ["key", "value", "header"])
def test_a_converter_of_a_package_is_custom(
    side: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On each side of a record."""
    install(monkeypatch, tmp_path, custom_converters.GROUP, "Own = json:loads")
    custom_converters.installed.cache_clear()
    own = replace(config(), **{f"{side}_converter": ConverterConfig("Own")})
    assert has_custom_code(own)


def test_a_transformation_of_a_package_is_custom(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Next to others."""
    install(monkeypatch, tmp_path, custom_transforms.GROUP, "Own = json:loads")
    custom_transforms.installed.cache_clear()
    built_in, own = TransformConfig("a", "JsonToMap"), TransformConfig("b", "Own")
    assert not has_custom_code(replace(config(), transforms=(built_in,)))
    assert has_custom_code(replace(config(), transforms=(built_in, own)))

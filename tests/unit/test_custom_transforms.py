"""Transformations of users: the documented example, and what goes wrong with others."""

from __future__ import annotations

import hashlib
import re
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from connect.errors import ConfigError, RecordError
from connect.records import SinkRecord
from connect.transforms.base import Apply, typed_options
from connect.transforms.custom import GROUP, declaration

PAGE = Path(__file__).parents[2] / "docs/transforms/custom.md"


def made(value: str, **options: str) -> Apply:
    """The function of an entry point with this value."""
    declared = declaration(EntryPoint("Own", value, GROUP))
    return declared.make(typed_options((), options, families=declared.families), "value")


def own(monkeypatch: pytest.MonkeyPatch, **members: Any) -> None:
    """A module ``own_transforms`` with these members."""
    module = types.ModuleType("own_transforms")
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, "own_transforms", module)


def record(value: Any) -> SinkRecord:
    return SinkRecord("t", 0, 1, None, value=value)


def test_the_documented_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function on the page does what the page says."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    members: dict[str, Any] = {}
    exec(code[1], members)
    own(monkeypatch, hashed=members["hashed"])
    apply = made("own_transforms:hashed", field="card")
    digest = hashlib.sha256(b"4111").hexdigest()
    assert apply(record({"card": 4111})) == record({"card": digest})
    assert apply(record(None)) == record(None)
    with pytest.raises(ConfigError, match="field"):
        made("own_transforms:hashed")


def test_what_it_raises_refuses_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's class is told, not its message; other results are refused, too."""
    own(
        monkeypatch,
        raising=lambda _: lambda _: {}["secret"],
        odd=lambda _: lambda _: "secret",
        many=lambda _: lambda r: [r, r],
        none=lambda _: None,
    )
    for name, said in (("raising", "KeyError"), ("odd", "str")):
        with pytest.raises(RecordError, match=said) as refused:
            made(f"own_transforms:{name}")(record(1))
        assert "secret" not in str(refused.value)
    assert made("own_transforms:many")(record(1)) == [record(1), record(1)]
    for value in ("own_transforms:none", "own_transforms:missing", "no_such_module:x"):
        with pytest.raises(ConfigError, match="Own"):
            made(value)

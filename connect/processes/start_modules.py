"""Imports the modules of a starting process.

Rules of this file:
- It imports the standard library only: a process imports it before its slow modules.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import sys
from collections.abc import Collection
from types import ModuleType

# pyarrow imports pandas if it is installed, which takes 0.2 s and 35 MB. Only pyspark needs it.
NOT_NEEDED = ("pandas",)


def start_module(name: str, *, without: Collection[str] = ()) -> ModuleType:
    """Import a module, and all that it imports, without garbage collection.

    The imports make hundreds of thousands of objects that stay until the process ends. Collections
    meanwhile would take a fifth of the time. Later collections skip these objects.

    Args:
        name: the module.
        without: optional libraries that are hidden from this process until it ends: those that
            import them if they are installed continue without them.
    """
    if without:
        sys.meta_path.insert(0, _Hidden(without))
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


class _Hidden(importlib.abc.MetaPathFinder):
    """Makes modules appear as not installed."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Refuse a hidden module; leave all others to the other finders."""
        del path, target
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is hidden from this process", name=fullname)

"""Imports the modules of a starting process.

Rules of this file:
- It imports the standard library only: a process imports it before its slow modules.
"""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def start_module(name: str) -> ModuleType:
    """Import a module, and all that it imports, without garbage collection.

    The imports make hundreds of thousands of objects that stay until the process ends. Collections
    meanwhile would take a fifth of the time. Later collections skip these objects.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()

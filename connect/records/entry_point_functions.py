"""Functions of users that entry points of installed packages name.

Rules of this file:
- Anything that a package raises while it is imported or given its options is an error of the
  configuration: packages have exceptions of their own classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

from connect.errors import ConfigError, IcefloeError

_CODES: Final = {"converter": "converter", "transformation": "transform"}


def made_by(kind: str, point: EntryPoint, options: Mapping[str, str]) -> Any:
    """Load the function of an entry point, and return what it makes of its options.

    Args:
        kind: ``converter`` or ``transformation``, for the errors.
        point: of a package.
        options: its argument.

    Raises:
        ConfigError: the function cannot be loaded, or rejects its options.
    """
    code = _CODES[kind]
    factory, error = outcome(point.load)
    if error is not None:
        raise ConfigError(
            f"{kind} {point.name}: {point.value} cannot be loaded: {error}", code=f"{code}_class"
        )
    made, error = outcome(lambda: factory(options))
    if error is not None:
        raise ConfigError(
            f"{kind} {point.name} rejects its options: {str(error) or type(error).__name__}",
            code=f"{code}_option",
        )
    return made


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Call a user's function; return its result, or its exception.

    Raises:
        IcefloeError, MemoryError: the function raised it.
    """
    try:
        return call(), None
    except (IcefloeError, MemoryError):
        raise
    except Exception as error:  # user's code: its libraries have exceptions of their own classes
        return None, error

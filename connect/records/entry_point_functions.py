"""Functions of users that entry points of installed packages name.

Rules of this file:
- Anything that a package raises while it is imported or given its options is an error of the
  configuration: packages have exceptions of their own classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

from connect.errors import ConfigError, IcefloeError


@dataclass(frozen=True, slots=True)
class FunctionKind:
    """What entry points of a group are, for errors.

    Attributes:
        name: in messages.
        class_code: code of a function that cannot be loaded.
        option_code: code of options that it rejects.
    """

    name: str
    class_code: str
    option_code: str


CONVERTER: Final = FunctionKind("converter", "converter_class", "converter_option")
TRANSFORMATION: Final = FunctionKind("transformation", "transform_class", "transform_option")


def made_by(kind: FunctionKind, point: EntryPoint, options: Mapping[str, str]) -> Any:
    """Load the function of an entry point, and return what it makes of its options.

    Args:
        kind: of the function.
        point: of a package.
        options: its argument.

    Raises:
        ConfigError: the function cannot be loaded, or rejects its options.
    """
    factory, error = outcome(point.load)
    if error is not None:
        raise ConfigError(
            f"{kind.name} {point.name}: {point.value} cannot be loaded: {error}",
            code=kind.class_code,
        )
    made, error = outcome(lambda: factory(options))
    if error is not None:
        raise ConfigError(
            f"{kind.name} {point.name} rejects its options: {str(error) or type(error).__name__}",
            code=kind.option_code,
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

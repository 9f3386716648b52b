"""Resolution of ``${provider:path:key}`` placeholders in the processes that need their values.

Rules of this file:
- A provider must be declared in the node's properties (``config.providers``).
- The file and dir providers read files below ``param.allowed.paths`` only, after links are
  resolved. The env provider requires ``param.allowlist.pattern``. Without the parameter, no value
  is readable.
- Error messages contain no resolved values and no content of files.
- Resolved values are never written to an answer, a topic, a log or arguments of a child process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from connect.config.connector import ConnectorConfig
from connect.config.key import list_of
from connect.config.keys.output_keys import output_key
from connect.config.keys.topic_keys import topic_key
from connect.config.location_policy import decides_locations
from connect.config.masking import secrets_in
from connect.config.placeholders import Placeholder, has_placeholder, replaced
from connect.config.properties_file import parse_properties
from connect.config.size_limits import RESOLVED_CHARACTERS_MAX
from connect.errors import ConfigError
from connect.gateways.access_policy import ACCESS_POLICY_KEYS
from connect.redaction.secret_values import ALONE_CHARACTERS_MAX, KNOWN
from connect.validation.client_policy import is_of_policy
from connect.validation.parse import GRANTS, parse

VALUE_BYTES_MAX = 1024 * 1024
FILES_KEPT_MAX = 16
_CLASSES = {
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
    "EnvVarConfigProvider": "env",
}
_NO_SECRETS = ("config.providers.", "icefloe.")
_Lookup = Callable[[str, str], str]


class Providers:
    """The configuration providers of a node.

    Args:
        node: node properties (``config.providers`` and ``config.providers.<name>.*``).
        environ: environment variables for the env provider.

    Raises:
        ConfigError: the class of a provider is unknown.
    """

    def __init__(self, node: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._lookups: dict[str, _Lookup] = {}
        _learn_inline(node)
        for name in list_of(node.get("config.providers", "").strip()):
            prefix = f"config.providers.{name}."
            class_name = node.get(prefix + "class", name)
            kind = _CLASSES.get(class_name.rpartition(".")[2], class_name)
            parameters = {
                key.removeprefix(prefix + "param."): value
                for key, value in node.items()
                if key.startswith(prefix + "param.")
            }
            if kind == "env":
                self._lookups[name] = _environment(parameters, environ)
            elif kind == "file":
                self._lookups[name] = _properties_files(parameters)
            elif kind == "dir":
                self._lookups[name] = _directory(parameters)
            else:
                raise ConfigError(
                    f"configuration provider {name} has the unknown class {class_name}; "
                    "use file, dir or env"
                )

    def resolve(self, text: str) -> str:
        """Replace all placeholders of declared providers in a text.

        Raises:
            ConfigError: the value is missing or not allowed; the message contains the placeholder.
        """
        left = RESOLVED_CHARACTERS_MAX

        def replacement(placeholder: Placeholder) -> str:
            lookup = self._lookups.get(placeholder.provider)
            if lookup is None:
                return placeholder.text
            try:
                value = lookup(placeholder.path, placeholder.key)
            except (
                OSError,
                RuntimeError,
                ValueError,
                LookupError,
            ):  # RuntimeError: a loop of links
                raise ConfigError(
                    f"{placeholder.text} cannot be resolved: the value does not exist or "
                    "may not be read",
                    code="placeholder",
                ) from None
            KNOWN.add(value)
            nonlocal left
            left -= len(value)
            if left < 0:
                raise ConfigError(
                    f"the values of placeholders have more than {RESOLVED_CHARACTERS_MAX} "
                    f"characters",
                    code="config_too_large",
                )
            return value

        return replaced(text, replacement)

    def learn(self, properties: Mapping[str, str]) -> None:
        """Resolve all placeholders of these properties, so that this process masks their values."""
        for value in properties.values():
            with contextlib.suppress(ConfigError):
                self.resolve(value)

    def resolve_all(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Resolve all values of a mapping.

        Raises:
            ConfigError: a placeholder cannot be resolved; the message contains the key.
        """
        resolved: dict[str, str] = {}
        for name, value in properties.items():
            try:
                resolved[name] = self.resolve(value)
            except ConfigError as error:
                error.at(key=name)
                raise
        return resolved


def resolve(
    config: ConnectorConfig, providers: Providers, *, node: Mapping[str, str] | None = None
) -> ConnectorConfig:
    """Resolve all placeholders of a configuration; ``raw`` is unchanged.

    Resolved values, and secrets in the configuration, are masked in this process.

    The result must not leave the process.

    Raises:
        ConfigError: a placeholder cannot be resolved, or the resolved configuration is invalid.
    """
    _learn_inline(config.raw)
    resolved = parse(
        providers.resolve_all(config.raw), node=providers.resolve_all(_for_connectors(node or {}))
    )
    return dataclasses.replace(resolved, raw=config.raw)


def _learn_inline(properties: Mapping[str, str]) -> None:
    """Mask the secrets in properties, except short texts."""
    for name, value in properties.items():
        output = output_key(name)
        is_known = topic_key(name) is not None or (output is not None and output.is_secret)
        is_setting = name.startswith(_NO_SECRETS) and not is_known
        if is_setting or has_placeholder(value):
            continue
        for secret in secrets_in(name, value):
            if len(secret) > ALONE_CHARACTERS_MAX:
                KNOWN.add(secret)


def _for_connectors(node: Mapping[str, str]) -> dict[str, str]:
    """Return the node's properties that affect connectors."""
    return {
        k: v
        for k, v in node.items()
        if k.split(".")[1:2] == ["converter"]
        or k.startswith(GRANTS)
        or is_of_policy(k)
        or decides_locations(k)
        or k in ACCESS_POLICY_KEYS
    }


def _environment(parameters: Mapping[str, str], environ: Mapping[str, str]) -> _Lookup:
    allowed = re.compile(parameters.get("allowlist.pattern", r"(?!)"))

    def lookup(path: str, key: str) -> str:
        if path or not allowed.fullmatch(key):
            raise LookupError
        return environ[key]

    return lookup


def _allowed_file(parameters: Mapping[str, str], path: Path) -> Path:
    real = path.resolve(strict=True)
    folders = [Path(p).resolve() for p in list_of(parameters.get("allowed.paths", "").strip())]
    if not any(real.is_relative_to(folder) for folder in folders):
        raise LookupError
    if real.stat().st_size > VALUE_BYTES_MAX:
        raise ValueError
    return real


def _properties_files(parameters: Mapping[str, str]) -> _Lookup:
    cache: dict[Path, tuple[tuple[int, int, int], dict[str, str]]] = {}

    def lookup(path: str, key: str) -> str:
        file = _allowed_file(parameters, Path(path))
        status = file.stat()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        kept = cache.get(file)
        if kept is None or kept[0] != version:
            text = file.read_text(encoding="utf-8")
            try:
                properties = parse_properties(text)
            except ConfigError:
                raise ValueError from None
            if len(cache) >= FILES_KEPT_MAX:
                cache.clear()
            kept = cache[file] = version, properties
        return kept[1][key]

    return lookup


def _directory(parameters: Mapping[str, str]) -> _Lookup:
    def lookup(path: str, key: str) -> str:
        if not key or "/" in key or key in {".", ".."}:
            raise LookupError
        return _allowed_file(parameters, Path(path) / key).read_text(encoding="utf-8")

    return lookup

"""Keys of transformations and predicates, which depend on the aliases in the configuration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from connect.config import version_range
from connect.config.key import REQUIRED, Key, Raw, invalid, list_of
from connect.config.size_limits import ALIAS_CHARACTERS_MAX, ALIASES_MAX
from connect.records.transforms.sql.sql_transform import is_sql, misplaced
from connect.validation.key_checks import Checked, check_keys
from connect.validation.plugins import INTERFACES, Plugin, Plugins

Enriched = Literal["transformation", "predicate"]
_LIST = {"transformation": "transforms", "predicate": "predicates"}
_RANK = {"HIGH": 0, "MEDIUM": 1, "LOW": 2}
_CONDITIONS = (
    Key("predicate", "STRING", "Alias of the predicate that selects the records.", None),
    Key(
        "negate",
        "BOOLEAN",
        "Apply the transformation to records for which the predicate is false.",
        "false",
    ),
)


@dataclass(slots=True)
class Aliases:
    """The declared keys and errors of a list of aliases."""

    keys: list[Key] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    recommended: dict[str, tuple[str, ...]] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)


def check_aliases(raw: Raw, kind: Enriched, plugins: Plugins) -> Aliases:
    """Declare and check the keys of transformations or predicates.

    The order of keys within their group is that of ``ConfigDef.embed``: type, version, then
    required keys, then the others, by importance and name.
    """
    aliases = Aliases()
    names = list(dict.fromkeys(list_of((raw.get(_LIST[kind]) or "").strip())))
    if (why := _too_long(names)) is not None:
        aliases.checked.add(_LIST[kind], f"Configuration {_LIST[kind]} is too long: {why}")
        return aliases
    for alias in names:
        prefix = f"{_LIST[kind]}.{alias}."
        group = f"{_LIST[kind].capitalize()}: {alias}"
        aliases.groups.append(group)
        type_key = Key(
            f"{prefix}type",
            "CLASS",
            f"Class of the {kind} `{alias}`.",
            REQUIRED,
            "HIGH",
            group,
            0,
            "LONG",
            f"{INTERFACES[kind]} type for {alias}",
        )
        aliases.keys.append(type_key)
        aliases.recommended[type_key.name] = tuple(p.class_name for p in plugins.of(kind))
        aliases.checked.merge(check_keys(raw, (type_key,)))
        plugin = _class_of(raw, type_key.name, kind, plugins, aliases.checked)
        version_key = Key(
            f"{prefix}plugin.version",
            "STRING",
            f"Version of the class of the {kind} `{alias}`.",
            plugin.version if plugin else None,
            "HIGH",
            group,
            1,
            "LONG",
            f"{INTERFACES[kind]} version for {alias}",
        )
        aliases.keys.append(version_key)
        aliases.recommended[version_key.name] = (
            (plugin.version,) if plugin and plugin.version else ()
        )
        aliases.checked.merge(check_keys(raw, (version_key,)))
        if plugin is None or _is_other_version(raw, prefix, plugin, aliases.checked):
            continue
        inner = _sorted(plugin.keys + (_CONDITIONS if kind == "transformation" else ()))
        checked = check_keys(raw, inner, prefix=prefix, is_embedded=True)
        if not checked.errors:
            _check_together(raw, prefix, plugin, checked)
        aliases.checked.merge(checked)
        for order, key in enumerate(inner, start=2):
            aliases.keys.append(
                dataclasses.replace(
                    key,
                    name=prefix + key.name,
                    group=f"{group}: {key.group}" if key.group else group,
                    order=order,
                    label=key.label or key.name,
                )
            )
        is_negated = f"{prefix}negate" in raw and f"{prefix}predicate" not in raw
        if is_negated and kind == "transformation":
            aliases.checked.add(
                type_key.name,
                f"Config '{prefix}negate' was provided but there is no config "
                f"'{prefix}predicate' defining a predicate to be negated.",
            )
    if kind == "transformation":
        _check_sql(raw, aliases)
    return aliases


def _too_long(aliases: list[str]) -> str | None:
    if len(aliases) > ALIASES_MAX:
        return f"it lists {len(aliases)} aliases, more than {ALIASES_MAX}"
    if any(len(alias) > ALIAS_CHARACTERS_MAX for alias in aliases):
        return f"an alias has more than {ALIAS_CHARACTERS_MAX} characters"
    return None


def _check_sql(raw: Raw, aliases: Aliases) -> None:
    """Check the position of a ``Sql`` transformation in the chain."""
    names = [name for name in aliases.recommended if name.endswith(".type")]
    types = {name: raw.get(name) or "" for name in names}
    queries = [name for name, class_name in types.items() if is_sql(class_name)]
    why = misplaced(
        list(types.values()),
        has_predicate=any(f"{name.removesuffix('type')}predicate" in raw for name in queries),
        is_row_level=bool(raw.get("iceberg.tables.cdc-field"))
        or (raw.get("iceberg.tables.upsert-mode-enabled") or "").strip().lower() == "true",
    )
    if why is not None:
        aliases.checked.add(queries[-1], why)


def _check_together(raw: Raw, prefix: str, plugin: Plugin, checked: Checked) -> None:
    """Check the options together, and the alias of the predicate."""
    options = {n.removeprefix(prefix): v for n, v in raw.items() if n.startswith(prefix)}
    own = {name: value for name, value in options.items() if value is not None}
    why = None
    if plugin.check_options is not None and own == options:  # another check reports null values
        why = plugin.check_options(own)
    if why is not None:
        checked.add(f"{prefix}type", why)
    predicate = own.get("predicate")
    predicates = list_of((raw.get("predicates") or "").strip())
    if predicate is not None and plugin.type == "transformation" and predicate not in predicates:
        checked.add(
            f"{prefix}predicate",
            invalid(f"{prefix}predicate", predicate, "predicates does not list it"),
        )


def _is_other_version(raw: Raw, prefix: str, plugin: Plugin, checked: Checked) -> bool:
    """Return whether another version is requested. As in Kafka, the error is at both keys."""
    requested = raw.get(f"{prefix}plugin.version")
    if requested is None or plugin.version is None:
        return False
    why = version_range.complaint(plugin.class_name, requested, plugin.version)
    if why is None:
        return False
    checked.add(f"{prefix}type", why)
    checked.add(f"{prefix}plugin.version", why)
    return True


def _class_of(
    raw: Raw, name: str, kind: Enriched, plugins: Plugins, checked: Checked
) -> Plugin | None:
    class_name = raw.get(name)
    if class_name is None:
        return None
    plugin = plugins.find(class_name.strip(), kind)
    if plugin is not None:
        return plugin
    other = plugins.find(class_name.strip())
    checked.values[name] = other and other.class_name
    checked.add(name, plugins.complaint(name, class_name, kind))
    return None


def _sorted(keys: tuple[Key, ...]) -> list[Key]:
    return sorted(
        keys,
        key=lambda k: (
            k.group is not None,
            k.order,
            not k.is_required,
            _RANK[k.importance],
            k.name,
        ),
    )

"""Validation for ``PUT /connector-plugins/<class>/config/validate`` and before creating connectors.

Rules of this file:
- The order of entries is that of Kafka Connect: framework keys, transformations, predicates, keys
  of the connector, keys of converters, client overrides, and undeclared keys.
- A value with a placeholder is returned as sent. The resolved value is neither returned nor part of
  an error message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from connect.config import source_group as groups
from connect.config import version_range
from connect.config.aggregation import TOPIC as AGGREGATE_TOPIC
from connect.config.client_overrides import PREFIXES, split
from connect.config.key import Key, Raw, invalid, typed
from connect.config.keys.client_keys import CLIENT_KEYS
from connect.config.keys.framework_keys import GROUPS
from connect.config.keys.iceberg_keys import CONTROL_TOPIC
from connect.config.keys.topic_keys import CONVERTER_SETTINGS, TOPIC_KEYS, topic_key
from connect.config.masking import Masker
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS
from connect.config.reserved_topics import WHY
from connect.config.size_limits import (
    LISTED_MAX,
    SENTENCE_CHARACTERS_MAX,
    check_resolved,
    check_size,
)
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.validation.access_check import unreachable
from connect.validation.alias_keys import check_aliases
from connect.validation.client_policy import ClientPolicy
from connect.validation.key_checks import Checked, check_framework, check_keys, check_nulls
from connect.validation.plugins import OWN_CONVERTER_KEYS, Plugin, Plugins, PluginType

Resolve = Callable[[str], str]
CONVERTERS: tuple[tuple[Literal["key", "value", "header"], PluginType], ...] = (
    ("key", "converter"),
    ("value", "converter"),
    ("header", "header_converter"),
)
_TOPIC_SETTINGS = frozenset(CONVERTER_SETTINGS)
_TOPIC_CLASSES = {
    key.name.partition(".")[0]: key for key in TOPIC_KEYS if key.name in _TOPIC_SETTINGS
}


@dataclass(frozen=True, slots=True)
class TakenNames:
    """Consumer groups and topics that a connector may not use.

    Attributes:
        worker_group: ``group.id`` of the nodes.
        topics: topics that connectors may neither read nor use for dead letters and outputs.
        own_topics: topics of the nodes and the broker, which cannot be control topics either.
        sources: topics that other connectors read or send rows to, which cannot be control
            topics.
        foreign: those of ``sources`` that connectors of other users read or send rows to, which
            get no dead letters.
        groups: description of the owner by consumer group.
    """

    worker_group: str
    topics: frozenset[str] = frozenset()
    own_topics: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A key of the answer: its definition (None if undeclared), its value and its errors."""

    name: str
    definition: Mapping[str, Any] | None
    value: str | None
    recommended: tuple[str, ...]
    errors: tuple[str, ...]
    is_visible: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the format of the validate answer."""
        return {
            "definition": self.definition,
            "value": {
                "name": self.name,
                "value": self.value,
                "recommended_values": list(self.recommended),
                "errors": list(self.errors),
                "visible": self.is_visible,
            },
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation."""

    class_name: str
    groups: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]
    warnings: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Return all error messages in the order of the entries."""
        return tuple(sentence for info in self.configs for sentence in info.errors)

    def with_errors(self, sent: Raw, errors: Mapping[str, Iterable[str]]) -> Validation:
        """Return the result with more errors. Keys without entry are appended."""
        configs = [
            dataclasses.replace(info, errors=(*info.errors, *errors.get(info.name, ())))
            for info in self.configs
        ]
        names = {info.name for info in configs}
        configs += [
            ConfigInfo(name, None, sent.get(name), (), tuple(sentences))
            for name, sentences in errors.items()
            if name not in names
        ]
        return dataclasses.replace(self, configs=tuple(configs))

    def to_json(self) -> dict[str, Any]:
        """Return the body of the validate answer."""
        return {
            "name": self.class_name,
            "error_count": len(self.errors),
            "groups": list(self.groups),
            "configs": [info.to_json() for info in self.configs],
        }


@dataclass(slots=True)
class _Answer:
    """Collects entries. ``sent`` has the values to return, ``raw`` the resolved values."""

    sent: Raw
    raw: Raw
    groups: list[str] = field(default_factory=lambda: list(GROUPS))
    entries: list[tuple[str, Key | None, Any, tuple[str, ...]]] = field(default_factory=list)
    checked: Checked = field(default_factory=Checked)
    hidden: set[str] = field(default_factory=set)

    def define(
        self,
        key: Key,
        *,
        prefix: str = "",
        recommended: Iterable[str] = (),
        default: str | None = None,
    ) -> None:
        name = prefix + key.name
        value = self.checked.values.get(name)
        if default is not None and name not in self.raw:
            value = default
        displayed = key if default is None else dataclasses.replace(key, default=default)
        self.entries.append((name, displayed, value, tuple(recommended)))


def definition(key: Key, *, prefix: str = "") -> dict[str, Any]:
    """Return a key's declaration in the format of REST answers. Older clients use ``order``."""
    return {
        "name": prefix + key.name,
        "type": key.type,
        "required": key.is_required,
        "default_value": key.default_text,
        "importance": key.importance,
        "documentation": f"{key.doc} No effect: {key.java_only}." if key.java_only else key.doc,
        "group": key.group,
        "order": key.order,
        "order_in_group": key.order,
        "width": key.width,
        "display_name": key.label or key.name,
        "dependents": [],
    }


def validate(
    plugin: Plugin,
    raw: Raw,
    plugins: Plugins,
    *,
    cluster: TakenNames | None = None,
    resolve: Resolve | None = None,
    policy: ClientPolicy | None = None,
    access: AccessPolicy | None = None,
) -> Validation:
    """Validate a connector's configuration.

    Args:
        plugin: the connector of ``connector.class``.
        raw: the configuration as sent; may contain nulls.
        plugins: the plugins that it can use.
        cluster: groups and topics of the nodes and of other connectors.
        resolve: resolves placeholders, for checks only.
        policy: the policy for client overrides; None allows all.
        access: the hosts and folders that connectors may access; None allows all.

    Raises:
        ConfigError: ``config_too_large``, or an invalid version.

    Returns:
        One entry for each declared key, and for each key in ``raw`` that is a client override,
        invalid, or null.
    """
    check_size(raw)
    resolved, unresolvable = _resolved(raw, resolve)
    answer = _Answer(raw, resolved)
    answer.checked = check_framework(resolved, plugin.framework)
    for name, sentence in unresolvable.items():
        answer.checked.add(name, sentence)
    _framework_entries(answer, plugin, plugins)
    for kind in ("transformation", "predicate"):
        aliases = check_aliases(resolved, kind, plugins)
        answer.checked.merge(aliases.checked)
        answer.groups.extend(aliases.groups)
        for key in aliases.keys:
            answer.define(key, recommended=aliases.recommended.get(key.name, ()))
    own = plugin.check(resolved) if plugin.check else check_keys(resolved, plugin.keys)
    answer.checked.merge(own)
    for key in plugin.keys:
        answer.define(key)
    _converter_entries(answer, plugins)
    _override_entries(answer)
    for name, sentence in policy.refusals(resolved) if policy is not None else ():
        answer.checked.add(name, sentence)
    if access is not None and plugin.check is not None:
        for name, sentence in unreachable(resolved, access):
            answer.checked.add(name, sentence)
    if cluster is not None:
        _check_taken(answer, plugin, cluster)
    answer.checked.merge(check_nulls(resolved))
    answer.groups.extend(plugin.groups)
    _undeclared_entries(answer)
    mask = Masker(raw, resolve or str)
    infos = [_info(answer, mask, *entry) for entry in answer.entries]
    if (group := raw.get(groups.OVERRIDE)) is not None:  # Kafka lists it twice
        infos.insert(0, ConfigInfo(groups.OVERRIDE, None, group, (), ()))
    return Validation(
        plugin.class_name,
        tuple(mask.name(group) for group in answer.groups),
        tuple(infos),
        tuple(mask(warning) for warning in answer.checked.warnings),
    )


def _resolved(raw: Raw, resolve: Resolve | None) -> tuple[Raw, dict[str, str]]:
    if resolve is None:
        return raw, {}
    resolved: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    characters = 0
    for name, value in raw.items():
        try:
            resolved[name] = value if value is None else resolve(value)
        except ConfigError as error:
            resolved[name] = value
            errors[name] = error.message
        characters += len(resolved[name] or "")
        check_resolved(characters)
    return resolved, errors


def _framework_entries(answer: _Answer, plugin: Plugin, plugins: Plugins) -> None:
    classes: dict[str, PluginType] = {f"{name}.converter": kind for name, kind in CONVERTERS}
    for key in plugin.framework:
        if key.name == "connector.plugin.version":
            _check_version(answer, key.name, plugin)
            _define_version(answer, key, plugin)
        elif key.name in classes:
            kind = classes[key.name]
            _check_class(answer, key.name, kind, plugins)
            answer.define(key, recommended=[p.class_name for p in plugins.of(kind)])
        elif key.name.endswith(".converter.plugin.version"):
            name = key.name.removesuffix(".plugin.version")
            class_name = (answer.raw.get(name, _default(plugin, name)) or "").strip()
            converter = plugins.find(class_name, classes[name])
            if converter is not None:
                _check_version(answer, key.name, converter, is_named=name in answer.raw)
            elif plugins.find(class_name) is None:
                answer.hidden.add(key.name)
            _define_version(answer, key, converter)
        else:
            answer.define(key)


def _define_version(answer: _Answer, key: Key, plugin: Plugin | None) -> None:
    """Define the key that selects a version: only the installed one can be chosen."""
    version = None if plugin is None else plugin.version
    answer.define(key, recommended=[version] if version else [], default=version)


def _default(plugin: Plugin, name: str) -> str:
    return next((key.default_text or "" for key in plugin.framework if key.name == name), "")


def _check_version(answer: _Answer, name: str, plugin: Plugin, *, is_named: bool = True) -> None:
    """Check a requested version. If the class is not named, check the syntax only."""
    requested = answer.raw.get(name)
    if requested is None or plugin.version is None:
        return
    try:
        why = version_range.mismatch(plugin.class_name, requested, plugin.version)
    except ConfigError as error:
        if name == "connector.plugin.version":
            raise
        why, is_named = error.message, True
    if why is not None and is_named:
        answer.checked.add(name, why)


def _check_class(answer: _Answer, name: str, kind: PluginType, plugins: Plugins) -> None:
    class_name = answer.raw.get(name)
    if class_name is None:
        return
    plugin_class = plugins.find(class_name.strip(), kind)
    if plugin_class is None:
        answer.checked.add(name, plugins.complaint(name, class_name, kind))
        plugin_class = plugins.find(class_name.strip())
    answer.checked.values[name] = plugin_class and plugin_class.class_name


def _converter_entries(answer: _Answer, plugins: Plugins) -> None:
    for name, kind in CONVERTERS:
        _option_entries(answer, plugins, f"{name}.converter", name, kind)
    for index, (whole, side) in enumerate(_topic_converters(answer.raw)):
        key = dataclasses.replace(_TOPIC_CLASSES[side], name=whole)
        _check_class(answer, whole, "converter", plugins)
        answer.define(key, recommended=[p.class_name for p in plugins.of("converter")])
        _option_entries(answer, plugins, whole, side, "converter", is_listed=index < LISTED_MAX)


def _topic_converters(raw: Raw) -> list[tuple[str, str]]:
    """Return the keys of converters of topics, with their roles."""
    keys = ((name, topic_key(name)) for name in sorted(raw))
    return [
        (name, key.setting.partition(".")[0])
        for name, key in keys
        if key is not None and key.setting in _TOPIC_SETTINGS and key.option is None
    ]


def _option_entries(
    answer: _Answer,
    plugins: Plugins,
    name: str,
    role: str,
    kind: PluginType,
    *,
    is_listed: bool = True,
) -> None:
    """Define and check the options of a converter.

    Args:
        answer: of the validation.
        plugins: the converters.
        name: key of its class.
        role: key, value or header.
        kind: of the plugin.
        is_listed: whether options that are not set are listed, too. Only a few topics have all,
            because an answer must not be much larger than its request.
    """
    class_name = answer.raw.get(name)
    plugin_class = plugins.find(class_name.strip(), kind) if class_name else None
    if plugin_class is None:
        return
    prefix = f"{name}."
    answer.groups.extend(group for group in plugin_class.groups if group not in answer.groups)
    raw = {prefix + "converter.type": role, **answer.raw}
    own = [k for k in OWN_CONVERTER_KEYS if prefix + k.name in raw and k not in plugin_class.keys]
    keys = (*plugin_class.keys, *own)
    checked = check_keys(raw, keys, prefix=prefix)
    if plugin_class.check_options is not None and not checked.errors:
        options = split(raw, prefix)
        if (why := plugin_class.check_options(options)) is not None:
            checked.add(name, why)
    answer.checked.merge(checked)
    for key in keys:
        if is_listed or prefix + key.name in answer.raw or prefix + key.name in checked.errors:
            answer.define(key, prefix=prefix)


def _override_entries(answer: _Answer) -> None:
    for name, value in answer.raw.items():
        prefix = next((p for p in PREFIXES if name.startswith(p) and name != p), None)
        if prefix is None:
            continue
        bare = name.removeprefix(prefix)
        key = CLIENT_KEYS.get(bare)
        if key is None:
            answer.entries.append((name, None, value, ()))
        else:
            result = typed(key, value)
            answer.checked.values[name] = value if result.errors else result.value
            answer.define(key, prefix=prefix)


def _undeclared_entries(answer: _Answer) -> None:
    """Append undeclared keys with errors; as in Kafka, null values come first."""
    defined = {entry[0] for entry in answer.entries}
    for name in answer.checked.errors:
        if name not in defined:
            place = 0 if answer.raw.get(name) is None else len(answer.entries)
            answer.entries.insert(place, (name, None, answer.raw.get(name), ()))


def _check_taken(answer: _Answer, plugin: Plugin, cluster: TakenNames) -> None:
    """Check that groups and topics do not belong to the nodes or to other connectors."""
    raw, checked = answer.raw, answer.checked
    for name in (groups.CONTROL, groups.CONNECT, groups.OVERRIDE):
        group = raw.get(name)
        if group and group == cluster.worker_group:
            checked.add(name, _group_clash(group))
    if f"connect-{raw.get('name')}" == cluster.worker_group:
        checked.add("name", _group_clash(cluster.worker_group))
    if plugin.check is None:
        return
    _check_topics(raw, checked, cluster)
    group = groups.source_group(raw)
    other = cluster.groups.get(group)
    if other is not None and "name" not in checked.errors:
        checked.add(
            groups.group_key(raw) or "name",
            f"Consumer group {group} belongs to {other}; set another group, or delete that "
            "connector first",
        )


def _check_topics(raw: Raw, checked: Checked, cluster: TakenNames) -> None:
    """Check the topics of the connector against topics for events, configurations and states."""
    control = checked.values.get(CONTROL_TOPIC)
    if control in cluster.own_topics:
        checked.add(
            CONTROL_TOPIC,
            invalid(CONTROL_TOPIC, control, "the topic belongs to the nodes or the broker"),
        )
    elif control in cluster.sources:
        checked.add(
            CONTROL_TOPIC, invalid(CONTROL_TOPIC, control, "another connector uses that topic")
        )
    dead_letter_key = "errors.deadletterqueue.topic.name"
    dead_letters = checked.values.get(dead_letter_key)
    if dead_letters in cluster.foreign:
        why = "a connector that you may not change uses it; set another topic"
        checked.add(dead_letter_key, invalid(dead_letter_key, dead_letters, why))
    outputs = (f"{OUTPUT_PREFIX}{name}.topic" for name in checked.values.get(OUTPUTS) or ())
    for name, topics in (
        ("topics", checked.values.get("topics") or ()),
        (dead_letter_key, (dead_letters,)),
        (AGGREGATE_TOPIC, (checked.values.get(AGGREGATE_TOPIC),)),
        *((key, ((raw.get(key) or "").strip(),)) for key in outputs),
    ):
        for topic in topics:
            # another rule reports the connector's control topic
            if topic in cluster.topics and topic != control:
                checked.add(name, invalid(name, topic, f"it is {WHY}; set another topic"))


def _group_clash(group: str) -> str:
    return f"Consumer group {group} conflicts with Connect worker group {group}"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _info(  # noqa: PLR0917 - an entry's parts
    answer: _Answer,
    mask: Masker,
    name: str,
    key: Key | None,
    value: Any,
    recommended: tuple[str, ...],
) -> ConfigInfo:
    sent, resolved = answer.sent.get(name), answer.raw.get(name)
    text = _text(value)
    errors = answer.checked.errors.get(name, ())
    if None not in (sent, resolved, text) and sent != resolved:
        text = sent
    if key is not None and (key.is_secret or key.type == "PASSWORD") and text is not None:
        text = "[hidden]"
    prefix = name.removesuffix(key.name) if key is not None else ""
    defined = None if key is None else definition(key, prefix=prefix)
    return ConfigInfo(
        mask.name(name),
        defined and {k: mask.name(v) if isinstance(v, str) else v for k, v in defined.items()},
        text,
        recommended,
        tuple(mask(sentence)[:SENTENCE_CHARACTERS_MAX] for sentence in errors),
        name not in answer.hidden,
    )

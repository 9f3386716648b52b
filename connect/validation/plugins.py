"""Plugins that configurations can use: connectors, converters, transformations, predicates.

As in Kafka Connect, a class is found by its full name, its simple name, or its simple name without
the suffix of its type (``Connector``, ``Converter``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Literal

from connect.config.connector import ConverterConfig
from connect.config.key import Key, any_case, invalid
from connect.config.keys.connector_keys import (
    CONNECTOR_CLASS,
    CONNECTOR_CLASSES,
    CONNECTOR_KEYS,
    FRAMEWORK_KEYS,
)
from connect.config.keys.registry_keys import (
    AVRO_KEYS,
    COMPRESSION,
    CONVERTER_TYPE,
    JSON_SCHEMA_KEYS,
    PROTOBUF_KEYS,
)
from connect.errors import ConfigError
from connect.records.converters.converter_classes import converter, is_custom
from connect.records.converters.custom_converters import installed as installed_converters
from connect.records.transforms.custom_transforms import installed
from connect.records.transforms.predicates import PREDICATES
from connect.records.transforms.transform import KAFKA, OWN, Declaration, Side, typed_options
from connect.records.transforms.transform_classes import DECLARATIONS, names_of
from connect.validation.cross_key_rules import check_sink
from connect.validation.key_checks import Checked, nearest

PluginType = Literal[
    "sink", "source", "transformation", "predicate", "converter", "header_converter"
]
TYPES: tuple[PluginType, ...] = (
    "sink",
    "source",
    "transformation",
    "predicate",
    "converter",
    "header_converter",
)
INTERFACES: Mapping[PluginType, str] = {
    "sink": "Connector",
    "source": "Connector",
    "transformation": "Transformation",
    "predicate": "Predicate",
    "converter": "Converter",
    "header_converter": "HeaderConverter",
}
SIMILARITY = 0.8
"""Classes that are less similar are not suggested."""
KAFKA_VERSION = "4.3.1"
SINK_VERSION = version("icefloe")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin class.

    Attributes:
        class_name: full name, as in existing connector JSON.
        type: Kafka Connect's plugin type.
        version: version of the plugin, or None.
        keys: its configuration keys, without prefix.
        check: check of a whole configuration; connectors only.
        task_class: class name in task configurations.
        framework: keys of the framework for all connectors of this type.
        aliases: additional full names.
        groups: groups of its keys, in the order of REST answers.
        check_options: check of the combination of its keys, without prefix; returns an error
            message or None.
        is_custom: whether it is an entry point, which has its full name only.
    """

    class_name: str
    type: PluginType
    version: str | None
    keys: tuple[Key, ...] = ()
    check: Callable[[Mapping[str, str | None]], Checked] | None = None
    task_class: str | None = None
    framework: tuple[Key, ...] = FRAMEWORK_KEYS
    aliases: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    check_options: Callable[[Mapping[str, str]], str | None] | None = None
    is_custom: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Return all names of the class."""
        simple = self.class_name.rpartition(".")[2]
        if "$" in simple or self.type == "transformation" or self.is_custom:
            return self.aliases | {self.class_name}
        short = simple.removesuffix(INTERFACES[self.type]) or simple
        if self.type == "header_converter":  # most header converters are also value converters
            short = short.removesuffix("Converter")
        return self.aliases | {self.class_name, simple, short}


def _of_debezium(class_name: str, kind: PluginType) -> str:
    """Return what to use instead of a transformation of Debezium, or an empty text."""
    if kind != "transformation" or not class_name.strip().startswith("io.debezium."):
        return ""
    return " Use it in the source connector."


class Plugins:
    """The plugins of a node, in the order of REST answers."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        order = {kind: rank for rank, kind in enumerate(TYPES)}
        self._plugins = sorted(plugins, key=lambda p: (order[p.type], p.class_name))

    def __add__(self, more: Iterable[Plugin]) -> Plugins:
        return Plugins([*self._plugins, *more])

    def all(self) -> tuple[Plugin, ...]:
        """Every plugin."""
        return tuple(self._plugins)

    def of(self, *kinds: PluginType) -> tuple[Plugin, ...]:
        """Return the plugins of these types."""
        return tuple(plugin for plugin in self._plugins if plugin.type in kinds)

    def find(self, name: str, *kinds: PluginType) -> Plugin | None:
        """Return the plugin with a name, optionally of certain types, or None."""
        for plugin in self._plugins:
            if (not kinds or plugin.type in kinds) and name in plugin.names:
                return plugin
        return None

    def complaint(self, key: str, class_name: str, kind: PluginType) -> str:
        """Return Kafka's error message for a class that is missing or of another type."""
        other = self.find(class_name.strip())
        sides = [f"{class_name.strip()}${side}" for side in ("Key", "Value")]
        if other is None and all(self.find(side, kind) for side in sides):
            return (
                "This class is abstract and cannot be created. Did you mean "
                + ", ".join(sides)
                + "?"
            )
        if other is None:
            near = self.nearest(class_name.strip(), kind) or _of_debezium(class_name, kind)
            return invalid(key, class_name, f"Class {class_name} could not be found.{near}")
        return f"Class class {other.class_name} does not implement the {INTERFACES[kind]} interface"

    def nearest(self, class_name: str, kind: PluginType) -> str:
        """Return a suggestion of the nearest class, or an empty text."""
        names = {name for plugin in self.of(kind) for name in plugin.names}
        is_full = "." in class_name
        listed = [name for name in names if ("." in name) == is_full]
        return nearest(class_name, listed, similarity=SIMILARITY)

    def connector(self, name: str) -> Plugin | None:
        """Return the connector with a name, or None."""
        return self.find(name.strip(), "sink", "source")


JSON_CONVERTER_KEYS: tuple[Key, ...] = (
    CONVERTER_TYPE,
    Key(
        "schemas.enable",
        "BOOLEAN",
        "Whether each record is an envelope with `schema` and `payload`.",
        "true",
        "HIGH",
        "Schemas",
        0,
        "MEDIUM",
        "Enable Schemas",
    ),
    Key(
        "schemas.cache.size",
        "INT",
        "Maximum number of cached schemas.",
        "1000",
        "HIGH",
        "Schemas",
        1,
        "MEDIUM",
        "Schema Cache Size",
        unit="schemas",
    ),
    Key(
        "schema.content",
        "STRING",
        "Schema of all records as JSON. If it is set, records are payloads without envelope.",
        None,
        "HIGH",
        "Schemas",
        2,
        "MEDIUM",
        "Schema Content",
    ),
    Key(
        "decimal.format",
        "STRING",
        "Format of serialized decimals: BASE64 or NUMERIC.",
        "BASE64",
        "LOW",
        "Serialization",
        0,
        "MEDIUM",
        "Decimal Format",
        check=any_case("NUMERIC", "BASE64"),
    ),
    Key(
        "replace.null.with.default",
        "BOOLEAN",
        "Replace a null field with its default value, if it has one.",
        "true",
        "LOW",
        "Serialization",
        1,
        "MEDIUM",
        "Replace null with default",
    ),
)
_KAFKA = "org.apache.kafka.connect"
_BOTH = {
    f"{_KAFKA}.converters.{kind}Converter": (CONVERTER_TYPE,)
    for kind in ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short")
} | {
    f"{_KAFKA}.json.JsonConverter": JSON_CONVERTER_KEYS,
    f"{_KAFKA}.storage.StringConverter": (
        CONVERTER_TYPE,
        Key(
            "converter.encoding",
            "STRING",
            "Character set.",
            "UTF-8",
            "HIGH",
            width="MEDIUM",
            label="Encoding",
        ),
    ),
}

_CONFLUENT = "io.confluent.connect"
REGISTRY_CONVERTERS: Mapping[str, tuple[Key, ...]] = {
    f"{_CONFLUENT}.avro.AvroConverter": AVRO_KEYS,
    f"{_CONFLUENT}.json.JsonSchemaConverter": JSON_SCHEMA_KEYS,
    f"{_CONFLUENT}.protobuf.ProtobufConverter": PROTOBUF_KEYS,
}

# Keys of Icefloe for all converters. As Kafka's converters do not declare them, answers contain
# them only if they are set.
OWN_CONVERTER_KEYS: tuple[Key, ...] = (COMPRESSION,)

CONVERTER_TYPES: tuple[PluginType, ...] = ("converter", "header_converter")


def _converter(name: str, kind: PluginType) -> Plugin:
    keys = _BOTH[name]
    groups = tuple(dict.fromkeys(key.group for key in reversed(keys) if key.group))
    return Plugin(name, kind, KAFKA_VERSION, keys, groups=groups)


def _version_of(package: str) -> str | None:
    """Return the version of a package's plugins. Iceberg's transformations have none."""
    return {KAFKA: KAFKA_VERSION, OWN: SINK_VERSION}.get(package)


def _check_options(declared: Declaration, side: Side, raw: Mapping[str, str]) -> str | None:
    try:
        declared.make(typed_options(declared.keys, raw, families=declared.families), side)
    except ConfigError as error:
        return error.message
    return None


def _check_converter(name: str, raw: Mapping[str, str]) -> str | None:
    try:
        converter(ConverterConfig(name, raw), "value")
    except ConfigError as error:
        return error.message
    return None


def custom_converters() -> tuple[Plugin, ...]:
    """Return the converters of installed packages."""
    return tuple(
        Plugin(
            name,
            kind,
            None,
            (CONVERTER_TYPE,),
            check_options=partial(_check_converter, name),
            is_custom=True,
        )
        for name in installed_converters()
        if is_custom(name)
        for kind in CONVERTER_TYPES
    )


BUILT_IN = Plugins(
    [
        Plugin(
            CONNECTOR_CLASS,
            "sink",
            SINK_VERSION,
            CONNECTOR_KEYS,
            check_sink,
            "org.apache.iceberg.connect.IcebergSinkTask",
            aliases=CONNECTOR_CLASSES,
        ),
        *(_converter(name, kind) for name in _BOTH for kind in CONVERTER_TYPES),
        *(
            Plugin(name, "converter", SINK_VERSION, keys)
            for name, keys in REGISTRY_CONVERTERS.items()
        ),
        Plugin(f"{_KAFKA}.storage.SimpleHeaderConverter", "header_converter", KAFKA_VERSION),
        *custom_converters(),
        *(
            Plugin(
                class_name,
                "transformation",
                _version_of(declared.package),
                declared.keys,
                aliases=frozenset(n for n, s in names_of(declared).items() if s == side),
                check_options=partial(_check_options, declared, side),
            )
            for declared in (*DECLARATIONS, *installed())
            for class_name in declared.class_names
            for side in (names_of(declared)[class_name],)
        ),
        *(
            Plugin(declared.class_name, "predicate", KAFKA_VERSION, declared.keys)
            for declared in PREDICATES
        ),
    ]
)

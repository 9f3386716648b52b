"""What a connector's configuration may name: connectors, converters, transformations, predicates.

A class is found by its full name, its simple name, or its simple name without the ending that
says what it is (``Connector``, ``Converter``), as Kafka Connect does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Literal

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
from connect.records.transforms.custom_transforms import installed
from connect.records.transforms.predicates import PREDICATES
from connect.records.transforms.transform import KAFKA, OWN, Declaration, Side, typed_options
from connect.records.transforms.transform_classes import DECLARATIONS, names_of
from connect.validation.cross_key_rules import check_sink
from connect.validation.key_checks import Checked

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
KAFKA_VERSION = "4.3.1"
SINK_VERSION = version("icefloe")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One class that configurations may name.

    Attributes:
        class_name: full name, as existing connector JSON writes it.
        type: Kafka Connect's word for what it is.
        version: None for plugins that state none.
        keys: its own configuration keys, without prefix.
        judge: what to check beyond the keys one by one; connectors only.
        task_class: what task configurations name.
        framework: keys that the framework gives every connector of this type.
        aliases: further full names.
        groups: groups of its keys, in the order answers list them.
        check_options: what is wrong with its keys together, given without prefix; None: nothing.
    """

    class_name: str
    type: PluginType
    version: str | None
    keys: tuple[Key, ...] = ()
    judge: Callable[[Mapping[str, str | None]], Checked] | None = None
    task_class: str | None = None
    framework: tuple[Key, ...] = FRAMEWORK_KEYS
    aliases: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    check_options: Callable[[Mapping[str, str]], str | None] | None = None

    @property
    def names(self) -> frozenset[str]:
        """Every name the class is found by."""
        simple = self.class_name.rpartition(".")[2]
        if "$" in simple or self.type == "transformation":
            return self.aliases | {self.class_name}
        short = simple.removesuffix(INTERFACES[self.type]) or simple
        if self.type == "header_converter":  # most are converters of values, too
            short = short.removesuffix("Converter")
        return self.aliases | {self.class_name, simple, short}


class Plugins:
    """The plugins of one node, in the order in which answers list them."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        order = {kind: place for place, kind in enumerate(TYPES)}
        self._plugins = sorted(plugins, key=lambda p: (order[p.type], p.class_name))

    def __add__(self, more: Iterable[Plugin]) -> Plugins:
        return Plugins([*self._plugins, *more])

    def all(self) -> tuple[Plugin, ...]:
        """Every plugin."""
        return tuple(self._plugins)

    def of(self, *kinds: PluginType) -> tuple[Plugin, ...]:
        """The plugins of these types."""
        return tuple(plugin for plugin in self._plugins if plugin.type in kinds)

    def find(self, name: str, *kinds: PluginType) -> Plugin | None:
        """The plugin of one of these types (any when none is given) that goes by the name."""
        for plugin in self._plugins:
            if (not kinds or plugin.type in kinds) and name in plugin.names:
                return plugin
        return None

    def complaint(self, key: str, given: str, kind: PluginType) -> str:
        """Kafka's sentence about a class that is not there or is something else."""
        other = self.find(given.strip())
        sides = [f"{given.strip()}${side}" for side in ("Key", "Value")]
        if other is None and all(self.find(side, kind) for side in sides):
            return (
                "This class is abstract and cannot be created. Did you mean "
                + ", ".join(sides)
                + "?"
            )
        if other is None:
            return invalid(key, given, f"Class {given} could not be found.")
        return f"Class class {other.class_name} does not implement the {INTERFACES[kind]} interface"

    def connector(self, name: str) -> Plugin | None:
        """The connector that goes by the name."""
        return self.find(name.strip(), "sink", "source")


JSON_CONVERTER_KEYS: tuple[Key, ...] = (
    CONVERTER_TYPE,
    Key(
        "schemas.enable",
        "BOOLEAN",
        "Each record is an envelope of `schema` and `payload`.",
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
        "Schemas kept in memory.",
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
        "Schema of every record, as JSON; records are then bare payloads.",
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
        "How decimals are written: BASE64 or NUMERIC.",
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
        "A null field with a default takes the default.",
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

# Ours, for every converter; shown where they are given, as Kafka's converters do not declare them.
OWN_CONVERTER_KEYS: tuple[Key, ...] = (COMPRESSION,)

CONVERTER_TYPES: tuple[PluginType, ...] = ("converter", "header_converter")


def _converter(name: str, kind: PluginType) -> Plugin:
    keys = _BOTH[name]
    groups = tuple(dict.fromkeys(key.group for key in reversed(keys) if key.group))
    return Plugin(name, kind, KAFKA_VERSION, keys, groups=groups)


def _version_of(package: str) -> str | None:
    """Iceberg's transformations state no version."""
    return {KAFKA: KAFKA_VERSION, OWN: SINK_VERSION}.get(package)


def _check_options(declared: Declaration, side: Side, raw: Mapping[str, str]) -> str | None:
    try:
        declared.make(typed_options(declared.keys, raw, families=declared.families), side)
    except ConfigError as error:
        return error.message
    return None


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

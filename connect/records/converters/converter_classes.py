"""Converters by class name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from connect.config.connector import ConverterConfig
from connect.errors import ConfigError
from connect.records.converters.avro.avro_converter import AvroConverter
from connect.records.converters.compressed import with_decompression
from connect.records.converters.converter import Converter, Role
from connect.records.converters.custom_converters import custom_converter, installed
from connect.records.converters.json.json_converter import JsonConverter
from connect.records.converters.json.json_schema_converter import JsonSchemaConverter
from connect.records.converters.plain_converters import (
    ByteArrayConverter,
    NumericConverter,
    StringConverter,
)
from connect.records.converters.protobuf.protobuf_converter import ProtobufConverter

Factory = Callable[[Mapping[str, str], Role], Converter]


def _numeric(kind: str, layout: str, options: Mapping[str, str], role: Role) -> Converter:
    del options  # numeric converters have no options
    return NumericConverter(kind, layout, role)


_FACTORIES: Final[Mapping[str, Factory]] = {
    "org.apache.kafka.connect.json.JsonConverter": JsonConverter,
    "org.apache.kafka.connect.storage.StringConverter": StringConverter,
    "org.apache.kafka.connect.converters.ByteArrayConverter": ByteArrayConverter,
    "org.apache.kafka.connect.converters.ShortConverter": partial(_numeric, "int16", ">h"),
    "org.apache.kafka.connect.converters.IntegerConverter": partial(_numeric, "int32", ">i"),
    "org.apache.kafka.connect.converters.LongConverter": partial(_numeric, "int64", ">q"),
    "org.apache.kafka.connect.converters.FloatConverter": partial(_numeric, "float32", ">f"),
    "org.apache.kafka.connect.converters.DoubleConverter": partial(_numeric, "float64", ">d"),
    "org.apache.kafka.connect.converters.BooleanConverter": partial(_numeric, "boolean", ">?"),
    "io.confluent.connect.avro.AvroConverter": AvroConverter,
    "io.confluent.connect.json.JsonSchemaConverter": JsonSchemaConverter,
    "io.confluent.connect.protobuf.ProtobufConverter": ProtobufConverter,
}
_SHORT: Final[Mapping[str, str]] = {name.rpartition(".")[2]: name for name in _FACTORIES}
# Kafka Connect's plugin aliases omit the suffix
_ALIASES: Final[Mapping[str, str]] = {
    **{short.removesuffix("Converter"): name for short, name in _SHORT.items()},
    **{short.removesuffix("Converter").lower(): name for short, name in _SHORT.items()},
}

_HINTS: Final = (
    (
        "com.amazonaws.services.schemaregistry.",
        ": AWS Glue Schema Registry is not supported, its records begin with another header",
    ),
    (
        "io.apicurio.registry.",
        ": use Confluent's converter and the address of Apicurio's API for it (/apis/ccompat/v7)",
    ),
)


def converter_names() -> tuple[str, ...]:
    """Return the full class names of all converters."""
    return tuple(_FACTORIES)


def is_custom(class_name: str) -> bool:
    """Return whether a class is an entry point of an installed package.

    Kafka's and Confluent's converters cannot be replaced.
    """
    return _full_name(class_name) not in _FACTORIES and class_name in installed()


def _full_name(class_name: str) -> str:
    return _SHORT.get(class_name) or _ALIASES.get(class_name) or class_name


def converter(config: ConverterConfig, role: Role) -> Converter:
    """Build a converter.

    Args:
        config: class (full Java name, simple name, an alias such as ``json``, or the name of an
            entry point) and options.
        role: key, value or header.

    Raises:
        ConfigError: the class is unknown, or an option is invalid.
    """
    name = config.class_name
    if is_custom(name):
        custom = custom_converter(installed()[name], config.options, role)
        return with_decompression(custom, config.options, role)
    factory = _FACTORIES.get(_full_name(name))
    if factory is None:
        names = ", ".join(sorted([*_SHORT, *installed()]))
        hint = next((text for prefix, text in _HINTS if name.startswith(prefix)), "")
        raise ConfigError(
            f"unknown converter {name!r}{hint}; use one of {names}", code="converter_class"
        )
    return with_decompression(factory(config.options, role), config.options, role)

"""Whether a connector runs code of installed packages on its records."""

from __future__ import annotations

from connect.config.connector import ConnectorConfig
from connect.records.converters.converter_classes import is_custom
from connect.records.transforms import custom_transforms, transform_classes


def has_custom_code(config: ConnectorConfig) -> bool:
    """Return whether a converter or transformation is an entry point of an installed package."""
    converters = (
        converter
        for each in config.converter_sets
        for converter in (each.key_converter, each.value_converter, each.header_converter)
    )
    if any(is_custom(converter.class_name) for converter in converters):
        return True
    return any(_is_own(transform.class_name) for transform in config.transforms)


def _is_own(class_name: str) -> bool:
    declared = transform_classes.find(class_name)
    return declared is not None and declared[0] in custom_transforms.installed()

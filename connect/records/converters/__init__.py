"""Converters: Kafka's bytes to Connect's data model, by the class names of existing connectors."""

from __future__ import annotations

from connect.records.converters.converter import Converter, Role
from connect.records.converters.converter_classes import converter

__all__ = ["Converter", "Role", "converter"]

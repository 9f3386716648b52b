"""Converters from Kafka's bytes to Connect's data model."""

from __future__ import annotations

from connect.records.converters.converter import Converter, Role
from connect.records.converters.converter_classes import converter

__all__ = ["Converter", "Role", "converter"]

"""Converters: Kafka's bytes to Connect's data model, by the class names of existing connectors."""

from __future__ import annotations

from connect.converters.base import Converter, Role
from connect.converters.registry import converter

__all__ = ["Converter", "Role", "converter"]

"""Converters with a schema registry or a schema file: what all formats share.

``registered_schemas`` is their base class, ``wire_format`` reads the schema id of a message.
Imports none of the formats.
"""

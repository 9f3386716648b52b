"""Requests of the REST API about stored connectors.

``stored_connectors`` guards every request, ``stopped_connectors`` has those that need a stopped
connector, ``views`` answers those below ``/icefloe/v1``. Imports ``cluster``, ``offsets`` and
``units``.
"""

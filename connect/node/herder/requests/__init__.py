"""What routes of the REST API call: requests about connectors.

``stored_connectors`` has most of them and guards all, ``stopped_connectors`` has those that need a
stopped connector, ``views`` those below ``/icefloe/v1``. Values and errors of requests are in
``connect.node.node_requests``. Imports ``herder`` and the folders below it.
"""

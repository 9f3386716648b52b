"""The Kafka Connect REST API, and Icefloe's own operations below ``/icefloe/v1``.

Begin with ``app``, which joins the routers. The way of a request:

- server and connections: ``transport``, ``connections``
- middleware: ``http_middleware``, ``limits``
- before a path operation: ``api_route``, ``auth``, ``access``, ``bodies``, ``dependencies``
- path operations of Kafka Connect: ``connectors``, ``plugins``, ``node_info``
- path operations of Icefloe: ``control``, ``operations``, ``overview``, ``status_page``
- what they use: ``config_validation``, ``forwarding``, ``peers``, ``cluster_metrics``,
  ``log_levels``
- bodies and errors: ``models``, ``operation_models``, ``api_errors``
"""

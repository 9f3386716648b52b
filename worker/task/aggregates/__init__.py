"""A task that writes event-time aggregates to a topic. It answers no rounds.

``aggregate_start`` claims and restores the state, then ``aggregate_run`` publishes the batches of
one streaming query over ``event_stream``. ``worker.aggregate`` has the query and the state. Imports
``source`` and ``dead_letters``, and of ``rounds`` the failpoints of a transaction and an interval.
"""

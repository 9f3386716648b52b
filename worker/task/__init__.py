"""The life of a task: from taking over its transactional id to the stop.

Begin with ``task``: it opens what ``task_context`` describes, and serves it until the stop or an
error. There are two kinds of tasks, ``run`` and ``aggregates``. A folder imports only folders below
it:

- ``run``: a task that answers commit rounds: its start and its loop
- ``aggregates``: a task that writes event-time aggregates to a topic, and answers no rounds
- ``batches``: processes a micro-batch
- ``rounds``: the commit rounds of the coordinator, and the task's answers
- fences both kinds of tasks: ``task_fencing``
- ``source``: reads the task's source partitions
- ``tables``: the tables of the task
- ``dead_letters``: records that the task could not process
- used by all folders: ``task_context``, ``read_ledger``, ``task_metrics``, ``reported_losses``
"""

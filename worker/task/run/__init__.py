"""A task that answers commit rounds: its start and its loop.

``task_start`` opens what a run needs, and ``task_run`` loops: it reads to the end of the log when a
round is requested, and announces. Imports ``batches``, ``rounds``, ``source`` and ``dead_letters``.

- when a task announces during a read: ``answer_timing``
- turns of the task's thread and of the query's callback: ``batch_turns``
"""

"""The commit rounds of the coordinator as a task knows them, and the task's answers.

``control_listener`` passes events of the control topic to ``task_rounds``. ``round_answers``
announces what the task has read, in one transaction of ``announcer``. Imports ``source``; knows
neither batches nor tables.

- the producer, which is closed while the task is idle: ``task_producer``
- rows for webhooks: ``webhook_posts``
- spans of an answer: ``answer_trace``
"""

"""The coordinator process: the commit kernel, committing, maintenance of metadata.

Begin with ``coordinator``: it runs the pure ``kernel``, turns effects into I/O, and answers
into inputs.

- the process: ``serving``, ``host``, ``coordinator_context``
- control events in and out: ``inbox``, ``control_reader``, ``outbox``
- checks of the control topic: ``control_log_check``, ``control_topic_watch``
- reports: ``round_report``, ``round_trace``, ``uncommitted_report``
- an operator's requests: ``operator_requests``
"""

"""The life of a task: from taking over its transactional id to the stop.

Begin with ``task``: ``task_start`` opens what ``task_context`` describes, then ``task_run``
loops. ``task_fencing`` is for both kinds of tasks. Its parts:

- rounds: ``control_listener``, ``task_rounds``, ``answer_timing``, ``round_answers``,
  ``answer_trace``
- read: ``task_source``, ``source_reader``, ``source_blocks``, ``source_rows``, ``source_log``,
  ``range_spread``
- process a batch: ``batch_processor``, ``batch_runner``, ``row_distribution``, ``batch_turns``
- tables: ``task_tables``, ``table_loads``, ``table_plans``, ``table_ages``, ``table_updates``,
  ``topic_rows``
- announce: ``read_ledger``, ``task_producer``, ``announcer``, ``webhook_posts``
- dead letters: ``record_errors``, ``dead_letter_limits``, ``dead_letter_table``
- reports: ``task_metrics``, ``reported_losses``
- aggregates, which answer no rounds: ``aggregate_start``, ``aggregate_run``, ``event_stream``
"""

"""Records that a task could not process.

``record_errors`` counts and logs them, ``dead_letter_limits`` stops a task with too many of them,
and ``dead_letter_table`` writes them to a table. The announcer sends those for a topic. Imports no
other folder.
"""

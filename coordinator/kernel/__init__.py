"""The commit protocol of one connector: pure, without client, clock or randomness.

Begin with ``kernel``, whose docstring has the rules and the state machine.

- inputs and effects: ``effects``
- the round: ``commit_round``, ``valid_through``, ``bounded_run``
- what is announced and not committed: ``announcements``, ``failed_tables``
- offsets: ``offsets``
"""

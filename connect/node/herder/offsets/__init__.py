"""Source offsets and control offsets of a connector, outside of its tasks.

``offset_events`` announces and stores changes of source offsets, ``offset_changes`` are those of an
operator. Imports none of the other folders.

- offsets that the broker would delete: ``offset_keeper``
- ``icefloe control rebase`` and ``icefloe rewind``: ``rebase``, ``rewind``
"""

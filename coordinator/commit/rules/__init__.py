"""Rules of a commit that hold for every table format.

Which announced files a commit adds, what its summary says, and which tables it refuses. Imports
none of the other folders.

- the interface of a committer, summary, refusals: ``commit_rules``, ``lost_records``
- files: ``file_selection``, ``held_files``
- reports: ``table_descriptions``
"""

"""The tables of a task, as its driver knows them.

``task_tables`` loads, creates and changes tables; ``topic_rows`` replaces it for a connector
without tables. Imports no other folder, and nothing else of a task.

- plans for the pipeline, and refusals: ``table_plans``
- requests that create or change a table: ``table_updates``
"""

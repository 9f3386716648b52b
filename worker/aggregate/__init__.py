"""Event-time aggregates: records as rows, the query over them, and the checkpoint of its state."""

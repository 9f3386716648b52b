"""The life of a task: from taking over its transactional id to the stop."""

"""A report: SQL over the present records of topics."""

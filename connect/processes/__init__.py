"""Processes of a node and what connects them: supervision, the pipe, hosted units."""

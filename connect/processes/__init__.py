"""Child processes of a node: supervision, the pipe between node and child, hosted units."""

"""Copy-on-write: data files written again without the rows that a round deletes."""

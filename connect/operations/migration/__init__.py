"""Check of a move from another sink: the state that it left, and what makes a start unsafe."""

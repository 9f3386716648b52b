"""Taking over a connector from another sink: what is there, and what it means."""

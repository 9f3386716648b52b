"""The coordinator process: the commit kernel, committing, maintenance of metadata."""

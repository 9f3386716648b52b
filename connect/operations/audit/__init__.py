"""Rows in = tables + dead letters + dropped, proved from what is stored, without trust in us."""

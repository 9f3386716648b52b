"""Parquet folders: plain files for every reader, with a log of commits that readers ignore."""

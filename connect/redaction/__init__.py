"""Texts that may leave the process: secrets masked, texts of other systems withheld."""

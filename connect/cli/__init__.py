"""The command line: ``icefloe``."""

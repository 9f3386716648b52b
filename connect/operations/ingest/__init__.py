"""``icefloe ingest``: the options of kafka-delta-ingest as one connector and node properties."""

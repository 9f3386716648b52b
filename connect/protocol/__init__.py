"""Control topic and source offsets, as node, worker and coordinator use them."""

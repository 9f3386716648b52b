"""One node: herder, REST API, status page, metrics."""

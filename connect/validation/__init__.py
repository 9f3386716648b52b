"""From a configuration as sent to one that runs: per key, across keys, plug-ins, live checks."""

"""Configuration: declared keys, typed configuration, and policies of the operator."""

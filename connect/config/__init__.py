"""What a configuration may say: keys, typed configuration, policies of the operator."""

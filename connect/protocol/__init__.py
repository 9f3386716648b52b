"""What node, worker and coordinator know of the control topic and of source offsets."""

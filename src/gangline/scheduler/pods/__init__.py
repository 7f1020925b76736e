"""A pod as input of the scheduler. Pure."""

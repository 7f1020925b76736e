"""`gangline run` and `gangline demo`."""

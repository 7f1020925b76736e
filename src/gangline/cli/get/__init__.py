"""`gangline get`, `list` and `ps`."""

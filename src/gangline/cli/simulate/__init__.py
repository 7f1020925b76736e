"""`gangline simulate`."""

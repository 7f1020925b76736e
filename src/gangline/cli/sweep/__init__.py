"""`gangline sweep`."""

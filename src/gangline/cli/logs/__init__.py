"""`gangline logs`."""

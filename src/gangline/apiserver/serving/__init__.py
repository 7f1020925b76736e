"""Connections to the API server: how many, for how long, and by which names."""

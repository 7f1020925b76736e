"""Queues: usage, limits and fair share. Pure."""

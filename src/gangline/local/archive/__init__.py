"""Archived runs: written when a run ends, and served again later."""

"""Strategies of `apps/v1`."""

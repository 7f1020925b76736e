"""Strategies of `v1`, except pods."""

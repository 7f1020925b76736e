"""Helpers for any asyncio service; imports no other package of gangline."""

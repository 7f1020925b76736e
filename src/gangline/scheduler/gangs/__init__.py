"""Gangs, their members, their phases and timeouts. Pure."""

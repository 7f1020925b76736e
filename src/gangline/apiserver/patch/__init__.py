"""Patch formats. Pure."""

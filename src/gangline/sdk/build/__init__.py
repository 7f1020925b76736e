"""Builds job manifests from arguments. Pure."""

"""Kinds, objects and replicas on a server."""

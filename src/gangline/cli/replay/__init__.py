"""Bundles of `gangline record` as jobs that `gangline run` plays."""

"""Pods as processes."""

"""Pods as input of the scheduler. Pure."""

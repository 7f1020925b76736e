"""Ports, bridges and network namespaces of pods."""

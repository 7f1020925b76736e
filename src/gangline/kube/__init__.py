"""Speak to any Kubernetes-compatible server."""

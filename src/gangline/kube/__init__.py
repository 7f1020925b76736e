"""A typed client for every Kubernetes-compatible API server."""

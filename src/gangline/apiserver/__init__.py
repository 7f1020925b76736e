"""An embedded Kubernetes API server.

Imports point downwards: streaming, http, registry, kinds and tables, apply, patch, errors and store.
"""

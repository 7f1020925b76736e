"""The Kubernetes wire protocol, as callee."""

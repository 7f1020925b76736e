"""The columns of `kubectl get`."""

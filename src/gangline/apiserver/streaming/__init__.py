"""Handlers of log, exec, attach and port-forward."""

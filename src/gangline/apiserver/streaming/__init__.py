"""Log, exec, attach and port-forward."""

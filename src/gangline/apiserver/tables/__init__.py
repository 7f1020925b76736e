"""Tables for `kubectl get`: columns and rows of every kind."""

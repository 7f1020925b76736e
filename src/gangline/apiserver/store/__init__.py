"""The store: all state of the embedded control plane."""

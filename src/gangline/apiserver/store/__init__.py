"""All state of the local control plane."""

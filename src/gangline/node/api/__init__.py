"""The HTTP API of the node: what of kubelet's API others read."""

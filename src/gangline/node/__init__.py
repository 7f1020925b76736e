"""A kubelet that runs pods as processes."""

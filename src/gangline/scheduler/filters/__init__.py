"""Which nodes can take a pod, which of them comes first, and why the others cannot. Pure."""

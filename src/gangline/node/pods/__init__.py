"""Pod workers: one per pod, from its start to its last status."""

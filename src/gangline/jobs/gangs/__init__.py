"""Gang schedulers: the PodGroups that each one reads, and what it needs on the pods."""

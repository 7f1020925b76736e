"""Which pods are evicted for others: preemption and reclaim. Pure."""

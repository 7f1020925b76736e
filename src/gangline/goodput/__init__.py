"""What the time of a job's replicas goes into: every second of every replica is one activity. Pure."""

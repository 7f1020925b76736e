"""Record and replay: a job of a cluster in one file, and the same team with the same faults on this machine."""

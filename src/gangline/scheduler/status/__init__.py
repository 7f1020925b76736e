"""Effects: the status of PodGroups and Queues, and the PodScheduled condition of pods."""

"""What the dashboard shows, as values: rows of jobs, queues, pods, events and nodes. Pure."""

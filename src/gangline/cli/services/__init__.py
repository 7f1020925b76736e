"""Commands that start, stop or inspect long-running processes: up, down, node, scheduler, doctor."""

"""Where the processes of a job stand: their stacks, sampled, grouped and put into words."""

"""From what is known of a job to its cause, the evidence and the next step. Pure."""

"""What to do about a job, decided on values. Pure."""

"""`gangline drill`: provoke a fault and report how the job recovers."""

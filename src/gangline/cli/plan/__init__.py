"""`gangline plan`: what a job would create, and whether it fits."""

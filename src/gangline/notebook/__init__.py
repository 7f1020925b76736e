"""`%load_ext gangline`: notebook cells as teams of processes."""

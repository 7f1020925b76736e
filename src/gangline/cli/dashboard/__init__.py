"""`gangline dashboard`, and the dashboard of a plane or a run on this machine."""

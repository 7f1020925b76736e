"""The cluster as one value that is cheap to copy and to change. Pure."""

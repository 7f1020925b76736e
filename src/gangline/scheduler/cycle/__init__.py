"""One scheduling cycle. Pure."""

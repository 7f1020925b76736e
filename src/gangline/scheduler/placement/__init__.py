"""A whole gang on a snapshot, and what-if questions. Pure."""

"""The scheduler on virtual time. Pure."""

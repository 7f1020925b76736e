"""The patch formats. Pure."""

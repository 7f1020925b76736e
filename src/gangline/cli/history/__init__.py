"""The recorded past: `gangline at TIME COMMAND`."""

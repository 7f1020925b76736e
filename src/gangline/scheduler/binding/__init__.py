"""Effects of a scheduling cycle: bind, pin and evict pods."""

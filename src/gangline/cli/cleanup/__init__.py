"""Makes sure that no process of a run outlives the command that started it."""

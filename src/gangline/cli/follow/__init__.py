"""A running job on a terminal. Used by run, sweep and demo."""

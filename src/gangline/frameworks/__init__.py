"""One file per framework: cluster wiring and success rule, nothing more."""

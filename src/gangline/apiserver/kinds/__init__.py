"""The rules of the built-in kinds: defaults, server-set fields, validation, warnings. Pure, in place, no I/O."""

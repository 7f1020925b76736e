"""The strategies of built-in kinds: defaults, server-set fields, validation, warnings. Pure and in place, without I/O."""

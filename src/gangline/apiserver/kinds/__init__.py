"""The strategies of kinds: defaults, server-set fields, validation, warnings. They change objects in place, without I/O."""

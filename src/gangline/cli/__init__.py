"""The command line: a package for each family of commands, and what these share."""

"""What commands share on the command line: lazy loading, groups of options, parameter types."""

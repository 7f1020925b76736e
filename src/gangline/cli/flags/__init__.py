"""What commands share on the command line: lazy loading, groups of options, types of values."""

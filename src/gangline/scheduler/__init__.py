"""The gang scheduler: all of a gang or none of it, on one snapshot. Import the modules, not this package."""

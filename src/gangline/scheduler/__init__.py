"""The gang scheduler: places all members of a gang or none, on one snapshot. Import the modules, not this package."""

"""What is on the wire, as data only."""

"""Which replica of a team failed first: what the end of each one says, and how ends are compared. Pure."""

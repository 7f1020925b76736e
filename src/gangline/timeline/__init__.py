"""What a team did over time: recorded versions of a job's objects in, rows, marks and curves out. Pure."""

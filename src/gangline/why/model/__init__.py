"""What is known of a job, as values: its objects, its failures, the report. Pure."""

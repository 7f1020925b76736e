"""A folder travels to the pods of a job."""

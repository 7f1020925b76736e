"""A controller runtime that knows no job."""

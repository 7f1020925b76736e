"""Copies a folder of this machine to the pods of a job."""

"""The job engine: everything that holds for all kinds of training jobs."""

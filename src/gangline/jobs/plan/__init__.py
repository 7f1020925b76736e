"""Decides what to do for a job: values in, a plan out. Pure."""

"""Joins operator, scheduler and local plane."""

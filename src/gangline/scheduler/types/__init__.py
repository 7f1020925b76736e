"""Inputs and results of a scheduling cycle. Pure."""

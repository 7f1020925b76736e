"""Ended runs, kept and readable."""

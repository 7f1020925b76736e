"""Validation and defaulting that several kinds share."""

"""Validation of a CustomResourceDefinition's schema."""

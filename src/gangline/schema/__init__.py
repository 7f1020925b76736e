"""Schemas as data: types, pruning, defaulting, validation, rules."""

"""Schemas as data: types, pruning, defaulting, validation, CEL rules."""

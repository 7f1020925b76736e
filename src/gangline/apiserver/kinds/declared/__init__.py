"""Kinds whose rules are data: a table says what differs from kind to kind, one strategy carries it out."""

"""Strategies of CustomResourceDefinitions and of custom resources."""

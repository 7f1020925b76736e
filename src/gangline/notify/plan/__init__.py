"""Decisions about notifications: which states are new, who hears of them, in which words, and when to try again."""

"""The rules, grouped by what they look at. `table.py` has their order."""

"""The rules, by what they look at. The order in which they are asked is in `table.py`."""

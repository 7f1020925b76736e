"""Whether jobs make progress: signs of life, what is usual for a job, and the verdict that it has stalled.

`signs.py`, `usual.py`, `activity.py` and `stall.py` are pure: values in, values out. `watcher.py` looks at the jobs of an
operator, one after the other, and reads no more than the next decision needs; `local_signs.py` and `cluster_signs.py` read
the signs of life.
"""

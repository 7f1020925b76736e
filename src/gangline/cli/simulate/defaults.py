"""Defaults and limits of `gangline simulate`, apart from the engine so that `--help` is fast."""

NODE_CAPACITY = "cpu=96,memory=1Ti,nvidia.com/gpu=8"
MAX_NODES = 100_000

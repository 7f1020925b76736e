"""`gangline operator`: the training jobs of a cluster, run by this process."""

from gangline.operator.main import operator

__all__ = ["operator"]

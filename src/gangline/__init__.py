"""Distributed training jobs from one YAML, on any Kubernetes and on a laptop.

    from gangline import TrainingClient

Names are looked up when first used: importing this package imports next to nothing.
"""

from gangline.base.lazy_exports import lazy_exports

__version__ = "0.1.0"

_NAMES = {
    "gangline.sdk.async_client": ("AsyncTrainingClient",),
    "gangline.sdk.build.jobs": (
        "Replica",
        "jax_job",
        "mpi_job",
        "paddle_job",
        "pytorch_job",
        "tf_job",
        "xgboost_job",
    ),
    "gangline.sdk.client": ("TrainingClient",),
    "gangline.sdk.errors": ("JobFailed", "TrainingError"),
    "gangline.sdk.job": ("Job",),
    "gangline.sdk.train": ("Run", "train"),
}
_HOOKS = {"gangline.notebook.magics": ("load_ipython_extension", "unload_ipython_extension")}
__all__, __getattr__ = lazy_exports(__name__, _NAMES, hooks=_HOOKS)

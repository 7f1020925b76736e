"""The GPUs of this machine: which there are, which of them the user's shell shows, and how a process gets its own.

Names are looked up when first used: settings need the values of this package, not the detection.
"""

from gangline.base.lazy_exports import lazy_exports

_NAMES = {
    "gangline.node.devices.detect": ("detect_gpus",),
    "gangline.node.devices.gpus": ("Gpu", "summarize_gpus"),
}
__all__, __getattr__ = lazy_exports(__name__, _NAMES)

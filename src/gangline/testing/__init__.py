"""Tools to test controllers and operators: a cluster that starts in milliseconds, a fake clock, objects, faults.

Names are imported when first used: importing this package imports nothing else.
"""

from gangline.base.lazy_exports import lazy_exports

_NAMES = {
    "gangline.testing.builders": ("make_job", "make_member", "make_pod", "make_template", "make_tfjob"),
    "gangline.testing.clock": ("FakeClock", "settle"),
    "gangline.testing.cluster": ("OperatorCluster", "local_cluster", "operator_cluster"),
    "gangline.testing.controllers": ("assert_controller_converges",),
    "gangline.testing.converge": ("Step", "assert_converges", "assert_survives", "random_story"),
    "gangline.testing.faults": ("SimulatedCrash", "Fault", "Faults", "FaultyTransport"),
    "gangline.testing.threaded": ("ThreadedCluster", "threaded_cluster"),
    "gangline.testing.world.world": ("World",),
    "gangline.testing.world.kubelet": ("Kubelet",),
}
_DEPRECATED = {"Died": ("SimulatedCrash", "0.2.0", "0.4.0")}
__all__, __getattr__ = lazy_exports(__name__, _NAMES, _DEPRECATED)

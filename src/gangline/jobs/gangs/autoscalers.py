"""What keeps autoscalers from taking a gang's nodes away: one member moved is the whole team restarted."""

from collections.abc import Mapping

NO_EVICTION_ANNOTATIONS: Mapping[str, str] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations of a pod: for Cluster Autoscaler, and for Karpenter."""

"""The pod security standards as pure functions: policies of namespaces, and what in a pod violates them."""

LABEL_PREFIX = "pod-security.kubernetes.io/"

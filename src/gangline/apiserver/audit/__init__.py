"""The audit log: who asked for what, and what came of it, in the format of kube-apiserver (audit.k8s.io/v1)."""

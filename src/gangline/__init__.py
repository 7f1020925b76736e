"""Distributed training jobs from one YAML, on any Kubernetes and on a laptop."""

__version__ = "0.1.0"

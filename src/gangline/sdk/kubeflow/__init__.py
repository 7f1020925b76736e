"""The names of `kubeflow.training`: programs change `kubeflow.training` to this package.

    from gangline.sdk.kubeflow import KubeflowOrgV1ReplicaSpec, TrainingClient, constants

Names are imported when first used, so that importing a module of this package does not import the client.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("gangline.sdk.kubeflow.names"), name)

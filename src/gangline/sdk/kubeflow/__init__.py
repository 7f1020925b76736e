"""What programs import from `kubeflow.training`, under the same names: change `kubeflow.training` to this package.

    from gangline.sdk.kubeflow import KubeflowOrgV1ReplicaSpec, TrainingClient, constants

Names are looked up when first used, so that importing one module of this package does not import the client.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("gangline.sdk.kubeflow.names"), name)

"""Whether a server lets kubelets restart all containers of a pod in place."""

import re

from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.jobs.pods.in_place_containers import add_in_place_containers
from gangline.kube.client import Client
from gangline.kube.errors import ApiError
from gangline.kube.options import WriteOptions

FIRST_VERSION = (1, 35)
"""Kubernetes has the rule action `RestartAllContainers` since then, behind a feature gate, and from 1.36 on by default."""

RESTRICTED_CONTAINER: JSON = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What Pod Security asks of a container in the operator's own namespace, where the server is asked."""


def may_restart_in_place(version: str) -> bool:
    """Whether a server of this version may know the action."""
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= FIRST_VERSION


async def offers_restart_in_place(client: Client, namespace: str, image: str) -> bool:
    """Whether the server accepts a pod with that action, and keeps it. Asked by a dry run: nothing is created.

    A server that does not answer raises; one that rejects the pod, for whatever reason, does not offer it.
    """
    spec: JSON = {
        "containers": [{"name": "program", "image": image, "securityContext": RESTRICTED_CONTAINER}],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    add_in_place_containers(spec, image)
    body = {"metadata": {"generateName": "gangline-in-place-"}, "spec": spec}
    asking = client.with_options(WriteOptions(dry_run=True))
    try:
        created = await asking.create(asking.unstructured(Pod), body, namespace=namespace)
    except ApiError as error:
        if error.code in (400, 403, 422):
            return False
        raise
    return bool(created["spec"]["containers"][-1].get("restartPolicyRules"))

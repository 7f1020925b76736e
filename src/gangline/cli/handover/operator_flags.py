"""The settings of an operator in a Deployment, ours or Kubeflow's, as `gangline operator` reads its flags."""

from collections.abc import Sequence
from typing import Any

import click

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.operator.flags import settings_from_flags
from gangline.operator.main import operator
from gangline.operator.settings import OperatorSettings

MPI_VALUES: JSON = {"rbac": {"mpiJobs": True}}
"""The rights that MPIJobs need, which an installation does not grant by default."""


def deployed_settings(deployment: JSON) -> OperatorSettings:
    """The settings of our operator in a Deployment."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environ = {item["name"]: item.get("value", "") for item in container.get("env") or ()}
    flags = _flags(container.get("args") or ())
    image = flags["agent_image"] or environ.get("GANGLINE_IMAGE", "")
    return settings_from_flags({**flags, "agent_image": image}, environ).operator


def carried_values(deployments: Sequence[JSON]) -> JSON:
    """The values of an installation that serves the same jobs in the same way as these Kubeflow operators.

    Empty where they have no such flags, or flags that are not known.
    """
    for deployment in deployments:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        words = [*(container.get("command") or ())[1:], *(container.get("args") or ())]
        try:
            flags = _flags(words)
            settings = settings_from_flags(flags, {}).operator
        except (click.ClickException, InputError):
            continue
        values = {
            "gangSchedulerName": flags["gang_scheduler_name"],
            "watchNamespaces": list(settings.namespaces),
            "kinds": list(settings.kinds) if flags["kinds"] else [],
        }
        return {name: value for name, value in values.items() if value}
    return {}


def _flags(words: Sequence[str]) -> dict[str, Any]:
    return operator.make_context("operator", list(words)).params

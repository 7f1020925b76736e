"""The objects of an installation, for tests that want its rights without its pods."""

from gangline.api.meta import JSON
from gangline.install.objects import install_objects
from gangline.install.value_fields import merged_values
from gangline.install.values import Release

RIGHTS = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def installation(values: JSON, namespace: str = "gangline") -> list[JSON]:
    """What is installed in a namespace for some values, but for the CRDs."""
    return install_objects(merged_values(values), Release(namespace=namespace))


def installed_rights(values: JSON, namespace: str = "gangline") -> list[JSON]:
    """Namespace, accounts, roles and bindings alone."""
    return [one for one in installation(values, namespace) if one["kind"] in RIGHTS]

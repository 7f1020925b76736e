"""What a write is charged to the quotas of its namespace."""

from collections.abc import Iterable
from datetime import datetime

from gangline.api.meta import JSON
from gangline.apiserver.admission.quota.items import GroupResource, is_counted, is_simple, quota_item
from gangline.apiserver.admission.quota.usage import QuotaCharge, quota_state
from gangline.apiserver.kinds.machinery.pod_amounts import Amounts
from gangline.apiserver.registry.admission import AdmissionRequest

PODS: GroupResource = ("", "pods")
VOLUME_CLAIMS: GroupResource = ("", "persistentvolumeclaims")


def charges(request: AdmissionRequest, quotas: Iterable[JSON], now: datetime) -> dict[str, Amounts] | None:
    """What is used of the quotas after the write, by name, of those that it changes. None: no quota counts it.

    Raises `QuotaViolation`.
    """
    if not _is_charged(request):
        return None
    resource = request.served_kind.resource.group_resource
    charge = QuotaCharge(
        resource,
        quota_item(resource, request.obj),
        quota_item(resource, request.old) if request.old is not None else None,
        now,
        unlimited=request.context.subresource == "status",
    )
    return charge.charged(quota_state(quota) for quota in quotas)


def _is_charged(request: AdmissionRequest) -> bool:
    """Whether the write can change what is used."""
    resource, subresource = request.served_kind.resource.group_resource, request.context.subresource
    if not is_counted(resource):
        return False
    if subresource == "status":
        return resource == VOLUME_CLAIMS
    if request.old is None:
        return True
    if resource == PODS:
        # Compute resources of a stored pod do not change; a deadline moves it to another scope.
        return _has_deadline(request.obj) != _has_deadline(request.old)
    return not is_simple(resource)


def _has_deadline(pod: JSON) -> bool:
    return pod["spec"].get("activeDeadlineSeconds") is not None

"""Resource quotas: a write that would use more of its namespace than its quotas allow is refused."""

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.admission.quota.items import GroupResource, is_counted, is_simple, quota_item
from gangline.apiserver.admission.quota.usage import QuotaCharge, QuotaViolation, quota_state
from gangline.apiserver.kinds.machinery.pod_amounts import Amounts
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import Catalog
from gangline.apiserver.registry.object_meta import rfc3339
from gangline.apiserver.registry.storage import decode_record, storage_form
from gangline.apiserver.registry.writes import WriteContext, managed_fields, set_managed_fields
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock

STATUS_WRITE = WriteContext(field_manager="kube-apiserver", subresource="status")
PODS: GroupResource = ("", "pods")
VOLUME_CLAIMS: GroupResource = ("", "persistentvolumeclaims")


class ResourceQuotaAdmission(AdmissionPlugin):
    """Charges writes to the quotas of their namespace.

    A quota is enforced once a controller has filled its status. The charge is committed together with the object, so
    that what is used is never less than what is there, and a write that fails is not charged.
    """

    name = "ResourceQuota"
    operations = frozenset(WriteOperation)
    subresources = frozenset({"", "status"})

    def __init__(self, store: Store, catalog: Catalog, clock: Clock) -> None:
        self._store, self._catalog, self._clock = store, catalog, clock

    async def validate(self, request: AdmissionRequest) -> None:
        self.joint_writes(request)

    def joint_writes(self, request: AdmissionRequest) -> tuple[StoreWrite, ...] | None:
        """The quotas with what is used of them after the write. None: the namespace has no quota for this write.

        Raises `StatusError` (403).
        """
        namespace = request.key.namespace
        prefix = collection_prefix("", "resourcequotas", namespace)
        if not namespace or not self._store.count(prefix) or not _is_charged(request):
            return None
        quotas = [(record, decode_record(record)) for record in self._store.range(prefix).records]
        try:
            charged = _charge(request, self._clock).charged(quota_state(quota) for _, quota in quotas)
        except QuotaViolation as violation:
            raise apierrors.forbidden(request.served_kind.resource, request.key.name, str(violation)) from None
        return tuple(
            self._status_write(record, quota, charged[name])
            for record, quota in quotas
            if (name := quota["metadata"]["name"]) in charged
        )

    def _status_write(self, record: StoreRecord, old: JSON, used: Amounts) -> StoreWrite:
        kind = self._catalog.storage_kind("", "resourcequotas")
        assert kind is not None
        new = decode_record(record)
        new["status"]["used"] = {name: str(amount) for name, amount in used.items()}
        owners = managed_fields(STATUS_WRITE, kind, old, new, rfc3339(self._clock.now()))
        set_managed_fields(kind, new, owners)
        return StoreWrite(record.path, storage_form(kind, new), record.revision)


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


def _charge(request: AdmissionRequest, clock: Clock) -> QuotaCharge:
    resource = request.served_kind.resource.group_resource
    return QuotaCharge(
        resource,
        quota_item(resource, request.obj),
        quota_item(resource, request.old) if request.old is not None else None,
        clock.now(),
        unlimited=request.context.subresource == "status",
    )

"""Resource quotas: a write that would use more of its namespace than its quotas allow is refused."""

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.kinds.machinery.pod_amounts import Amounts
from gangline.apiserver.registry.admission import OBJECT_WRITES, AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.catalog import Catalog
from gangline.apiserver.registry.object_meta import rfc3339
from gangline.apiserver.registry.storage import decode_record, storage_form
from gangline.apiserver.registry.writes import WriteContext, managed_fields, set_managed_fields
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock

STATUS_WRITE = WriteContext(field_manager="kube-apiserver", subresource="status")


class ResourceQuotaAdmission(AdmissionPlugin):
    """Charges writes to the quotas of their namespace.

    A quota is enforced once a controller has filled its status. The charge is committed together with the object, so
    that what is used is never less than what is there, and a write that fails is not charged.
    """

    name = "ResourceQuota"
    operations = OBJECT_WRITES
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
        if not namespace or not self._store.has(prefix):
            return None
        # Loaded here: most planes have no quota.
        from gangline.apiserver.admission.quota.charges import charges
        from gangline.apiserver.admission.quota.usage import QuotaViolation

        quotas = [(record, decode_record(record)) for record in self._store.range(prefix).records]
        try:
            charged = charges(request, [quota for _, quota in quotas], self._clock.now())
        except QuotaViolation as violation:
            raise apierrors.forbidden(request.served_kind.resource, request.key.name, str(violation)) from None
        if charged is None:
            return None
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

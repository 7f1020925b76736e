"""Pod security: what a namespace's labels ask of its pods is enforced, warned of and recorded."""

from collections.abc import Callable, Mapping

from gangline.api.meta import JSON
from gangline.apiserver.admission.security import LABEL_PREFIX
from gangline.apiserver.registry.admission import OBJECT_WRITES, AdmissionPlugin, AdmissionRequest, GroupResource
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.store import Store

NAMESPACES: GroupResource = ("", "namespaces")
PODS: GroupResource = ("", "pods")


def _own_template(obj: JSON) -> JSON | None:
    template: JSON | None = obj.get("template")
    return template


def _spec_template(obj: JSON) -> JSON | None:
    template: JSON | None = (obj.get("spec") or {}).get("template")
    return template


def _job_template(obj: JSON) -> JSON | None:
    return _spec_template((obj.get("spec") or {}).get("jobTemplate") or {})


TEMPLATES: Mapping[GroupResource, Callable[[JSON], JSON | None]] = {
    ("", "podtemplates"): _own_template,
    ("", "replicationcontrollers"): _spec_template,
    ("apps", "replicasets"): _spec_template,
    ("apps", "deployments"): _spec_template,
    ("apps", "statefulsets"): _spec_template,
    ("apps", "daemonsets"): _spec_template,
    ("batch", "jobs"): _spec_template,
    ("batch", "cronjobs"): _job_template,
}
"""The pod templates of kinds that are warned of, by resource."""


class PodSecurity(AdmissionPlugin):
    """Refuses pods that violate the policy of their namespace; warns of pods and templates that would."""

    name = "PodSecurity"
    operations = OBJECT_WRITES
    resources = frozenset({NAMESPACES, PODS, *TEMPLATES})
    subresources = frozenset({"", "ephemeralcontainers", "resize"})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, request: AdmissionRequest) -> None:
        resource = request.served_kind.resource.group_resource
        if resource == NAMESPACES:
            self._validate_namespace(request)
        elif (labels := self._namespace_labels(request.key.namespace)) is not None:
            # Loaded here: most planes have no namespace that asks for it.
            from gangline.apiserver.admission.security import decisions

            if resource == PODS:
                decisions.check_pod(request, labels)
            elif (template := TEMPLATES[resource](request.obj)) is not None:
                decisions.check_template(request, labels, template)
        elif resource == PODS:
            request.add_audit_annotation(f"{LABEL_PREFIX}enforce-policy", "privileged:latest")

    def _namespace_labels(self, name: str) -> JSON | None:
        """The labels of a namespace that asks for pod security."""
        record = self._store.get(object_path(*NAMESPACES, "", name))
        if record is None or LABEL_PREFIX.encode() not in record.data:
            return None
        labels: JSON = decode_record(record)["metadata"].get("labels") or {}
        return labels

    def _validate_namespace(self, request: AdmissionRequest) -> None:
        if not any(name.startswith(LABEL_PREFIX) for name in request.obj["metadata"].get("labels") or ()):
            return
        from gangline.apiserver.admission.security import decisions

        def pods() -> list[JSON]:
            records = self._store.range(collection_prefix(*PODS, request.key.name)).records
            return [decode_record(record) for record in records]

        decisions.check_namespace(request, pods)

"""What pod security says of a write: a refusal, warnings, annotations of its audit event."""

from collections.abc import Callable, Iterable

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.admission.security import LABEL_PREFIX
from gangline.apiserver.admission.security.baseline import PodTemplate
from gangline.apiserver.admission.security.policy import (
    LeveledVersion,
    SecurityLevel,
    SecurityPolicy,
    namespace_policy,
)
from gangline.apiserver.admission.security.standards import details_text, reasons_text, violations
from gangline.apiserver.registry.admission import AdmissionRequest
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, summary

MAX_CHECKED_PODS = 3000
"""How many pods of a namespace are checked when its policy changes."""


def check_pod(request: AdmissionRequest, labels: JSON) -> None:
    """Check a pod against the labels of its namespace. Raises `StatusError` (403)."""
    policy, problems = namespace_policy(labels)
    if policy.is_privileged and not problems:
        request.add_audit_annotation(f"{LABEL_PREFIX}enforce-policy", str(LeveledVersion()))
        return
    if request.old is not None and not _is_significant_update(request.obj, request.old):
        return
    pod = PodTemplate(request.obj["metadata"], request.obj["spec"])
    _evaluate(request, policy, problems, pod, enforce=True)


def check_template(request: AdmissionRequest, labels: JSON, template: JSON) -> None:
    """Check the template of a workload, which is warned of and never refused."""
    policy, problems = namespace_policy(labels)
    if problems or policy.warn.level or policy.audit.level:
        pod = PodTemplate(template.get("metadata") or {}, template.get("spec") or {})
        _evaluate(request, policy, problems, pod, enforce=False)


def check_namespace(request: AdmissionRequest, pods: Callable[[], Iterable[JSON]]) -> None:
    """Check the labels of a namespace, and its pods if they become stricter. Raises `StatusError` (422)."""
    policy, problems = namespace_policy(request.obj["metadata"].get("labels"))
    old_policy, old_problems = SecurityPolicy(), list[FieldProblem]()
    if request.old is not None:
        old_policy, old_problems = namespace_policy(request.old["metadata"].get("labels"))
    if problems and problems != old_problems:
        raise apierrors.invalid(request.served_kind.resource, request.key.name, problems)
    if request.old is not None and _is_stricter(policy.enforce, old_policy.enforce):
        request.warnings.extend(existing_pod_warnings(request.key.name, policy.enforce, pods()))


def _evaluate(
    request: AdmissionRequest,
    policy: SecurityPolicy,
    problems: list[FieldProblem],
    pod: PodTemplate,
    *,
    enforce: bool,
) -> None:
    if problems:
        request.add_audit_annotation(f"{LABEL_PREFIX}error", f"Failed to parse policy: {summary(problems)}")
    if enforce:
        request.add_audit_annotation(f"{LABEL_PREFIX}enforce-policy", str(policy.enforce))
    if bad := violations(policy.audit, pod):
        text = f"would violate PodSecurity {quoted_text(str(policy.audit))}: {details_text(bad)}"
        request.add_audit_annotation(f"{LABEL_PREFIX}audit-violations", text)
    if enforce and (bad := violations(policy.enforce, pod)):
        text = f"violates PodSecurity {quoted_text(str(policy.enforce))}: {details_text(bad)}"
        raise apierrors.forbidden(request.served_kind.resource, request.key.name, text)
    if bad := violations(policy.warn, pod):
        text = f"would violate PodSecurity {quoted_text(str(policy.warn))}: {details_text(bad)}"
        request.warnings.append(text)


def _is_stricter(new: LeveledVersion, old: LeveledVersion) -> bool:
    """Whether pods that the old policy allowed may violate the new one."""
    if new == old or new.level is SecurityLevel.PRIVILEGED:
        return False
    return new.minor != old.minor or new.level > old.level


def _is_significant_update(pod: JSON, old: JSON) -> bool:
    """Whether an update can violate a policy: of a stored pod only images and ephemeral containers change."""
    new_spec, old_spec = pod["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if _images(new_spec, field) != _images(old_spec, field):
            return True
    old_images = {item["name"]: item.get("image") for item in old_spec.get("ephemeralContainers") or ()}
    return any(
        item["name"] not in old_images or item.get("image") != old_images[item["name"]]
        for item in new_spec.get("ephemeralContainers") or ()
    )


def _images(spec: JSON, field: str) -> list[str]:
    return [item.get("image", "") for item in spec.get(field) or ()]


def existing_pod_warnings(namespace: str, policy: LeveledVersion, pods: Iterable[JSON]) -> list[str]:
    """Warnings of the pods that violate the new policy of their namespace; pods with the same reasons share one."""
    ordered = _one_per_controller_first(pods)
    names: dict[str, list[str]] = {}
    for pod in ordered[:MAX_CHECKED_PODS]:
        if bad := violations(policy, PodTemplate(pod["metadata"], pod["spec"])):
            names.setdefault(reasons_text(bad), []).append(pod["metadata"]["name"])
    warnings: list[str] = []
    if len(ordered) > MAX_CHECKED_PODS:
        warnings.append(
            f"new PodSecurity enforce level only checked against the first {MAX_CHECKED_PODS} "
            f"of {len(ordered)} existing pods"
        )
    if names:
        warnings.append(
            f"existing pods in namespace {quoted_text(namespace)} violate the new PodSecurity enforce level "
            f"{quoted_text(str(policy))}"
        )
    return warnings + sorted(f"{_pods_text(pod_names)}: {reasons}" for reasons, pod_names in names.items())


def _pods_text(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def _one_per_controller_first(pods: Iterable[JSON]) -> list[JSON]:
    """The pods, those whose controller has an earlier pod last."""
    first: list[JSON] = []
    further: list[JSON] = []
    controllers: set[str] = set()
    for pod in pods:
        references = pod["metadata"].get("ownerReferences") or ()
        uid = next((reference["uid"] for reference in references if reference.get("controller")), "")
        (further if uid in controllers else first).append(pod)
        if uid:
            controllers.add(uid)
    return first + further

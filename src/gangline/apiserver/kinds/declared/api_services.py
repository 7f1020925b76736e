"""APIServices: which server serves a group."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, invalid, required

_MAX_GROUP_PRIORITY, _MAX_VERSION_PRIORITY = 20_000, 1_000


class ApiServiceStrategy(DeclaredStrategy):
    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        if "service" not in obj["spec"]:
            obj["status"]["conditions"] = [local_condition(now)]

    def validate(self, obj: JSON) -> list[FieldProblem]:
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        expected = f"{spec.get('version', '')}.{spec.get('group', '')}"
        problems = super().validate(obj)
        if name and name != expected:
            detail = f'must be `spec.version+"."+spec.group`: {quoted_text(expected)}'
            problems.insert(0, invalid("metadata.name", name, detail))
        return problems

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec, service, problems = obj["spec"], obj["spec"].get("service"), []
        if not spec.get("group") and spec.get("version") != "v1":
            problems.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
        problems += super().validate_content(obj)
        for field, most in (("groupPriorityMinimum", _MAX_GROUP_PRIORITY), ("versionPriority", _MAX_VERSION_PRIORITY)):
            if not 0 < spec[field] <= most:
                problems.append(invalid(f"spec.{field}", spec[field], f"must be positive and less than {most}"))
        if service is None:
            return problems + _validate_local(spec)
        if errors := formats.port_number_errors(service["port"]):
            problems.append(invalid("spec.service.port", service["port"], f"port is not valid: {', '.join(errors)}"))
        if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
            problems.append(
                invalid(
                    "spec.insecureSkipTLSVerify",
                    spec["insecureSkipTLSVerify"],
                    "may not be true if caBundle is present",
                )
            )
        return problems


def _validate_local(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if bundle := spec.get("caBundle"):
        size = f"{len(bundle) * 3 // 4} bytes"
        problems.append(invalid("spec.caBundle", size, "local APIServices may not have a caBundle"))
    if spec.get("insecureSkipTLSVerify"):
        detail = "local APIServices may not have insecureSkipTLSVerify"
        problems.append(invalid("spec.insecureSkipTLSVerify", spec["insecureSkipTLSVerify"], detail))
    return problems


def local_condition(now: str) -> JSON:
    """The condition of a group that this server serves itself."""
    return {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }

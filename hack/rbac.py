"""Writes the roles in manifests/ from `gangline.install.rules`: `python hack/rbac.py`. A test fails when they differ."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON
from gangline.install.rules import (
    DEFAULT_FEATURES,
    METRICS_AUTH_RULES,
    METRICS_READER_RULE,
    OPERATOR_RULES,
    SCHEDULER_CLUSTER_RULES,
    SCHEDULER_RULES,
    Feature,
    Rule,
    crd_rules,
    lease_rules,
    operator_rules,
)
from gangline.operator.settings import KUBEFLOW_LEASE
from gangline.scheduler.settings import LEASE_NAME
from gangline.schema.crds.gang_crds import GANG_RESOURCES
from gangline.schema.crds.job_roles import job_roles

MANIFESTS = Path(__file__).parents[1] / "manifests"
NAMESPACE = "gangline"
OPERATOR, SCHEDULER = "gangline-operator", "gangline-scheduler"
TEAMS = ("team-a", "team-b")
WIDTH = 120


def manifests() -> dict[str, str]:
    """The text of each file by its name."""
    return {
        "rbac.yaml": _file(
            "What the operator may do in a cluster, and what users may do with jobs. MPIJobs need rbac-mpi.yaml, too. "
            "For some namespaces only, use rbac-namespaced.yaml instead.",
            _namespace(),
            _account(OPERATOR, NAMESPACE),
            _role(OPERATOR, operator_rules()),
            _binding(OPERATOR, OPERATOR, NAMESPACE),
            _role(f"{OPERATOR}-lease", lease_rules(KUBEFLOW_LEASE), NAMESPACE),
            _binding(f"{OPERATOR}-lease", OPERATOR, NAMESPACE, NAMESPACE),
            *_user_roles(),
        ),
        "rbac-mpi.yaml": _file(
            "Besides rbac.yaml, for MPIJobs v1: the operator makes a role for each launcher, and so must have what it "
            "grants. Without these rights it leaves MPIJobs alone until it has them.",
            _role(f"{OPERATOR}-mpi", OPERATOR_RULES[Feature.MPI]),
            _binding(f"{OPERATOR}-mpi", OPERATOR, NAMESPACE),
        ),
        "rbac-gang-schedulers.yaml": _file(
            "Besides rbac.yaml, for gangs of other schedulers. Take the one that --gang-scheduler-name says.",
            *(
                text
                for feature in (Feature.VOLCANO, Feature.SCHEDULER_PLUGINS, Feature.KUBERNETES)
                for text in (
                    _role(f"{OPERATOR}-{feature}", OPERATOR_RULES[feature]),
                    _binding(f"{OPERATOR}-{feature}", OPERATOR, NAMESPACE),
                )
            ),
        ),
        "rbac-install-crds.yaml": _file(
            "Besides rbac.yaml, for an operator with --install-crds.",
            _role(f"{OPERATOR}-install-crds", crd_rules(_definition_names())),
            _binding(f"{OPERATOR}-install-crds", OPERATOR, NAMESPACE),
        ),
        "rbac-metrics.yaml": _file(
            "Besides rbac.yaml and scheduler.yaml, for --metrics-secure: who scrapes needs gangline-metrics-reader.",
            _role("gangline-metrics-auth", METRICS_AUTH_RULES),
            _binding("gangline-metrics-auth", OPERATOR, NAMESPACE, more=(SCHEDULER,)),
            _reader_role(),
        ),
        "rbac-namespaced.yaml": _file(
            f"What the operator may do with --namespace={','.join(TEAMS)}: nothing outside of these namespaces. Write "
            f"your own for {' and '.join(TEAMS)}. The operator runs in {TEAMS[0]}. The rules are those of rbac.yaml.",
            _account(OPERATOR, TEAMS[0]),
            _role(f"{OPERATOR}-lease", lease_rules(KUBEFLOW_LEASE), TEAMS[0]),
            _binding(f"{OPERATOR}-lease", OPERATOR, TEAMS[0], TEAMS[0]),
            *(
                text
                for team in TEAMS
                for text in (
                    _role(OPERATOR, operator_rules(DEFAULT_FEATURES), team),
                    _binding(OPERATOR, OPERATOR, TEAMS[0], team),
                )
            ),
            f"# Only where MPIJobs v1 run.\n{_role(f'{OPERATOR}-mpi', OPERATOR_RULES[Feature.MPI], TEAMS[0])}",
            _binding(f"{OPERATOR}-mpi", OPERATOR, TEAMS[0], TEAMS[0]),
        ),
        "scheduler.yaml": _scheduler_file(),
    }


def _scheduler_file() -> str:
    """The roles anew, and the rest of the file as it is."""
    separator = "---\napiVersion: apps/v1\nkind: Deployment\n"
    deployment = (MANIFESTS / "scheduler.yaml").read_text().partition(separator)[2]
    return (
        _file(
            "The gang scheduler of a cluster, beside kube-scheduler. Needs the definitions in manifests/crds of PodGroup "
            "and Queue; docs/scheduling.md says more.",
            _namespace(),
            _account(SCHEDULER, NAMESPACE),
            _role(SCHEDULER, (*SCHEDULER_CLUSTER_RULES, *SCHEDULER_RULES)),
            _binding(SCHEDULER, SCHEDULER, NAMESPACE),
            _role(f"{SCHEDULER}-lease", lease_rules(LEASE_NAME), NAMESPACE),
            _binding(f"{SCHEDULER}-lease", SCHEDULER, NAMESPACE, NAMESPACE),
        )
        + separator
        + deployment
    )


def _definition_names() -> list[str]:
    return [resource.name for resource in (*(kind.resource for kind in TRAINING_KINDS), *GANG_RESOURCES)]


def _user_roles() -> Iterable[str]:
    edit, view = map(_plain_role, job_roles(TRAINING_KINDS))
    yield f"# Added to Kubernetes' own roles admin and edit: whoever may edit pods in a namespace may edit jobs there.\n{edit}"
    yield view


# Text


def _file(comment: str, *documents: str) -> str:
    header = textwrap.fill(comment, WIDTH, initial_indent="# ", subsequent_indent="# ")
    return header + "\n" + "---\n".join(documents)


def _namespace() -> str:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return _head("v1", "Namespace", NAMESPACE, labels=labels)


def _account(name: str, namespace: str) -> str:
    return _head("v1", "ServiceAccount", name, namespace)


def _head(version: str, kind: str, name: str, namespace: str = "", labels: Mapping[str, str] | None = None) -> str:
    lines = [f"apiVersion: {version}", f"kind: {kind}", "metadata:", f"  name: {name}"]
    lines += [f"  namespace: {namespace}"] if namespace else []
    lines += ["  labels:", *(f"    {label}: {_scalar(value)}" for label, value in labels.items())] if labels else []
    return "\n".join(lines) + "\n"


def _role(name: str, rules: Iterable[Rule], namespace: str = "") -> str:
    head = _head("rbac.authorization.k8s.io/v1", "Role" if namespace else "ClusterRole", name, namespace)
    comments = [textwrap.fill(rule.why, WIDTH, initial_indent="  # ", subsequent_indent="  # ") for rule in rules]
    texts = [f"{comment}\n{_rule(rule.to_json())}" for comment, rule in zip(comments, rules, strict=True)]
    return f"{head}rules:\n{''.join(texts)}"


def _plain_role(role: JSON) -> str:
    metadata = role["metadata"]
    head = _head(role["apiVersion"], role["kind"], metadata["name"], labels=metadata["labels"])
    return f"{head}rules:\n{''.join(map(_rule, role['rules']))}"


def _reader_role() -> str:
    return f"{_head('rbac.authorization.k8s.io/v1', 'ClusterRole', 'gangline-metrics-reader')}rules:\n{_rule(METRICS_READER_RULE)}"


def _binding(role: str, account: str, home: str, namespace: str = "", more: Sequence[str] = ()) -> str:
    kind = "Role" if namespace else "ClusterRole"
    head = _head("rbac.authorization.k8s.io/v1", f"{kind}Binding", role, namespace)
    reference = f"roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {role}\n"
    subjects = [f"  - kind: ServiceAccount\n    name: {name}\n    namespace: {home}\n" for name in (account, *more)]
    return f"{head}{reference}subjects:\n{''.join(subjects)}"


def _rule(rule: JSON) -> str:
    return "".join(
        _field(name, values, "  - " if number == 0 else "    ") for number, (name, values) in enumerate(rule.items())
    )


def _field(name: str, values: Sequence[str], indent: str) -> str:
    line = f"{indent}{name}: [{', '.join(map(_scalar, values))}]"
    if len(line) <= WIDTH:
        return line + "\n"
    return f"{indent}{name}:\n" + "".join(f"      - {_scalar(value)}\n" for value in values)


def _scalar(text: str) -> str:
    return json.dumps(text) if text in ("", "true") else text


if __name__ == "__main__":
    for name, text in manifests().items():
        (MANIFESTS / name).write_text(text)

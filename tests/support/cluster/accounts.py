"""Service accounts with the least roles that a program needs, and which of their rights it used."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import yaml

from gangline.api.meta import JSON
from gangline.apiserver.audit.rights import UsedRight, read_events, used_rights
from support.cluster.clients import DetachedPlane, Kubectl

ROLES_FOLDER = Path(__file__).parents[2] / "data" / "roles"
ACCOUNTS_NAMESPACE = "accounts"
RBAC_GROUP = "rbac.authorization.k8s.io"


class GrantedRight(NamedTuple):
    """One verb on one resource that a role grants."""

    verb: str
    group: str
    resource: str
    """With its subresource: `pods/log`."""
    namespace: str
    """Empty: in all namespaces."""
    name: str
    """Empty: all names."""

    def covers(self, used: UsedRight) -> bool:
        resource = f"{used.resource}/{used.subresource}" if used.subresource else used.resource
        return (
            (self.verb, self.group, self.resource) == (used.verb, used.group, resource)
            and self.namespace in ("", used.namespace)
            and self.name in ("", used.resource_name)
        )


def unused_rights(user: str, roles: Iterable[JSON], audit_log: Path) -> list[GrantedRight]:
    """What roles grant to a user who did not use it, by an audit log."""
    used = [right for right in used_rights(read_events(audit_log)) if right.user == user]
    assert used, f"{user} did nothing that the audit log knows"
    return sorted({right for role in roles for right in _granted(role) if not any(map(right.covers, used))})


def _granted(role: JSON) -> Iterator[GrantedRight]:
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        scopes = product(rule["verbs"], rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""]))
        for verb, group, resource, name in scopes:
            yield GrantedRight(verb, group, resource, namespace, name)


class ProgramAccount:
    """The service account of one program, with the roles in `tests/data/roles/NAME.yaml` and no other."""

    def __init__(self, plane: DetachedPlane, program: str, audit_log: Path) -> None:
        self._plane, self._audit_log = plane, audit_log
        self.name = program
        self.user = f"system:serviceaccount:{ACCOUNTS_NAMESPACE}:{self.name}"
        self.roles: list[JSON] = list(yaml.safe_load_all((ROLES_FOLDER / f"{program}.yaml").read_text()))
        self.kubeconfig = plane.folder / f"{self.name}.kubeconfig"
        self._grant()

    @property
    def environment(self) -> Mapping[str, str]:
        """What the program needs to reach the plane as this account."""
        return {**self._plane.environment, "KUBECONFIG": str(self.kubeconfig)}

    def unused_rights(self) -> list[GrantedRight]:
        """What the roles grant and the program did not use, by the plane's audit log."""
        return unused_rights(self.user, self.roles, self._audit_log)

    def _grant(self) -> None:
        namespaces = {role["metadata"]["namespace"] for role in self.roles if "namespace" in role["metadata"]}
        objects = [_object("Namespace", name) for name in (ACCOUNTS_NAMESPACE, *sorted(namespaces))]
        objects.append(_object("ServiceAccount", self.name, ACCOUNTS_NAMESPACE))
        objects += [document for role in self.roles for document in (role, self._binding(role))]
        for namespace, group in groupby(objects, key=lambda item: item["metadata"].get("namespace", "default")):
            items = {"apiVersion": "v1", "kind": "List", "items": list(group)}
            Kubectl(self._plane, namespace)("apply", "-f", "-", stdin=items)
        token = Kubectl(self._plane, ACCOUNTS_NAMESPACE)("create", "token", self.name).strip()
        config = yaml.safe_load(self._plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig.write_text(json.dumps(config))

    def _binding(self, role: JSON) -> JSON:
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": ACCOUNTS_NAMESPACE}
        return {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": f"{role['kind']}Binding",
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": role["kind"], "name": role["metadata"]["name"]},
            "subjects": [subject],
        }


def _object(kind: str, name: str, namespace: str = "") -> JSON:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
    }

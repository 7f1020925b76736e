"""Which right the server denied, and what somebody without it can do. Pure."""

import re
import shlex

from gangline.api.denied_access import DeniedAccess, denied_access
from gangline.base.errors import GanglineError
from gangline.cli.install.plan import CRD_KIND
from gangline.cli.install.record import RECORD_NAME, ObjectRef

MAX_RIGHTS = 3
"""The most rights that a message lists."""
_ESCALATION = "attempting to grant RBAC permissions not currently held"
_UNHELD_RULE = re.compile(
    r'\{APIGroups:\["(?P<group>[^"]*)"\], Resources:\["(?P<resource>[^"]+)"\], Verbs:\[(?P<verbs>[^\]]+)\]'
)
_GRANTOR = re.compile(r'user "(?P<user>[^"]+)"')


class MissingRight(GanglineError):
    """The user lacks a right that the installation needs."""


def missing_right_text(ref: ObjectRef, error: str) -> str:
    """Which right is missing for an object, and what somebody without rights in the whole cluster can do."""
    if _ESCALATION in error:
        return f"{ref.display_name}: {_escalation_text(ref, error)}"
    denied = denied_access(error)
    if denied is None:
        return f"{ref.display_name}: {' '.join(error.split())}"
    return f"{ref.display_name}: {_denied_text(denied)}; {_remedy(ref, denied)}"


def _denied_text(denied: DeniedAccess) -> str:
    group = f".{denied.group}" if denied.group else ""
    where = f"in namespace {denied.namespace}" if denied.namespace else "in the whole cluster"
    return f"you may not {denied.verb} {denied.resource}{group} {where}"


def _remedy(ref: ObjectRef, denied: DeniedAccess) -> str:
    if ref.kind == CRD_KIND:
        return (
            "an administrator of the cluster installs the definitions: gangline crds | kubectl apply --server-side -f -"
        )
    namespaced = "with rights in one namespace only, write: gangline install --scope namespace=NAMESPACE"
    if ref.name == RECORD_NAME:
        namespaced += ", and --namespace NAMESPACE to upgrade or remove what is installed there"
    if not denied.namespace or denied.namespace == "gangline":
        return f"an administrator of the cluster may; {namespaced}"
    return f"an administrator allows it: {_grant_command(denied.user, denied.namespace)}"


def _escalation_text(ref: ObjectRef, error: str) -> str:
    """Kubernetes lets nobody grant a right that they do not have: which those are."""
    rules = [
        f"{', '.join(rule['verbs'].replace(chr(34), '').split())} {rule['resource']}{rule['group'] and '.'}{rule['group']}"
        for rule in _UNHELD_RULE.finditer(error)
    ]
    more = f" and {len(rules) - MAX_RIGHTS} more" if len(rules) > MAX_RIGHTS else ""
    rights = f" ({'; '.join(rules[:MAX_RIGHTS])}{more})" if rules else ""
    user = _GRANTOR.search(error)
    text = f"you may grant the operator only rights that you have yourself, and lack some{rights}"
    if ref.namespace and user:
        return f"{text}; an administrator gives you all rights in this namespace: {_grant_command(user['user'], ref.namespace)}"
    return f"{text}; an administrator of the cluster may"


def _grant_command(user: str, namespace: str) -> str:
    name = re.sub("[^a-z0-9.-]", "-", user.lower())
    words = ("kubectl", "create", "rolebinding", f"{name}-owner", "--clusterrole", "cluster-admin", "--user", user)
    return shlex.join((*words, "-n", namespace))

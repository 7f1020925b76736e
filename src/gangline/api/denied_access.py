"""A request that RBAC denied, read from the text of its 403, and the commands with which an administrator allows it."""

import re
import shlex

import msgspec

_DENIED = re.compile(
    r"""User \\?"(?P<user>[^"\\]+)\\?" cannot (?P<verb>\w+) resource \\?"(?P<resource>[^"\\]+)\\?" """
    r"""in API group \\?"(?P<group>[^"\\]*)\\?" (?:in the namespace \\?"(?P<namespace>[^"\\]+)|at the cluster scope)"""
)
"""The quotes have a backslash where a program prints the JSON of the response."""
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:(?P<account>[^:]+:[^:]+)")
_ANONYMOUS = "system:anonymous"
_READ_VERBS = ("get", "list", "watch")
_VIEWED = {"": {"pods", "pods/log", "services", "configmaps", "events", "persistentvolumeclaims"}}
"""What the default roles `view` and `edit` allow to read and write, by API group, besides jobs."""
_JOB_GROUP = "kubeflow.org"


class DeniedAccess(msgspec.Struct, frozen=True):
    """Who may not do what, and where: an empty namespace is the whole cluster."""

    user: str
    verb: str
    resource: str
    group: str
    namespace: str = ""


def denied_access(text: str) -> DeniedAccess | None:
    """The request that a text says was denied; none if it has no such message."""
    found = _DENIED.search(text)
    return DeniedAccess(**{name: value or "" for name, value in found.groupdict().items()}) if found else None


def grant_commands(denied: DeniedAccess) -> tuple[str, ...]:
    """The commands with which an administrator allows it: by `view` or `edit` where these do, else by a role for it.

    None for a request without a login: that needs credentials, not rights.
    """
    if denied.user == _ANONYMOUS:
        return ()
    account = _SERVICE_ACCOUNT.fullmatch(denied.user)
    subject = ("--serviceaccount", account["account"]) if account else ("--user", denied.user)
    short_name = (account["account"] if account else denied.user).removeprefix(f"{denied.namespace}:")
    short_name = re.sub("[/%:]", "-", short_name)
    where = ("-n", denied.namespace) if denied.namespace else ()
    role_kind, binding = ("role", "rolebinding") if denied.namespace else ("clusterrole", "clusterrolebinding")
    if denied.group == _JOB_GROUP or denied.resource in _VIEWED.get(denied.group, ()):
        role = "view" if denied.verb in _READ_VERBS else "edit"
        return (
            shlex.join(("kubectl", "create", binding, f"{short_name}-{role}", "--clusterrole", role, *subject, *where)),
        )
    resource, slash, subresource = denied.resource.partition("/")
    full_resource = f"{resource}.{denied.group}" if denied.group else resource
    name = f"{short_name}-{denied.verb}-{denied.resource.replace('/', '-')}"
    rule = ("--verb", denied.verb, "--resource", f"{full_resource}{slash}{subresource}")
    return (
        shlex.join(("kubectl", "create", role_kind, name, *rule, *where)),
        shlex.join(("kubectl", "create", binding, name, f"--{role_kind}", name, *subject, *where)),
    )

"""Reviews: questions about who somebody is and what they may do. Answered and forgotten, never stored.

They tell what `auth.py` does: members of `system:masters` may do everything, others may look at versions and health
and ask about themselves.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.apply.managed import updated
from gangline.apiserver.apply.tracked import Tracked, tracked
from gangline.apiserver.errors import Refused
from gangline.apiserver.http.authentication import PUBLIC, Authenticator, User, authorize
from gangline.apiserver.http.routes import Target, Verb
from gangline.apiserver.kinds.machinery.gostruct import internal
from gangline.apiserver.kinds.machinery.problems import invalid
from gangline.schema.problems import Problem, summary
from gangline.schema.typed.openapi import types_of
from gangline.schema.typed.strict_decoding import Decoder

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
AUDIENCE = "https://kubernetes.default.svc"
"""Whom a token of ours is for, unless it says otherwise."""

# Everybody with a name may ask about themselves.
_SELF = frozenset({"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})


class Question(msgspec.Struct, frozen=True):
    """A review that was sent, and by whom."""

    user: User
    target: Target
    body: JSON
    manager: str
    now: str

    @property
    def version(self) -> str:
        return f"{self.target.group}/{self.target.version}"

    @property
    def spec(self) -> JSON:
        return self.body.get("spec") or {}


class Reviews:
    """Answers reviews."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._kinds: Mapping[tuple[str, str], tuple[str, Callable[[Question], JSON]]] = {
            (AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", _who),
            (AUTHENTICATION, "tokenreviews"): ("TokenReview", self._token),
            (AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _own_access),
            (AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", _access),
            (AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", _local_access),
            (AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _rules),
        }

    def __contains__(self, target: Target) -> bool:
        return target.version == "v1" and (target.group, target.plural) in self._kinds

    def admit(self, user: User, verb: Verb, target: Target) -> None:
        """May they ask this? Raises `Refused`: 403, or 405 for anything but creating."""
        named = "system:authenticated" in user.groups
        if not (named and verb is Verb.CREATE and target.plural in _SELF):
            authorize(user, verb, target)
        local = target.plural == "localsubjectaccessreviews"
        if verb is not Verb.CREATE or target.name or local is not bool(target.namespace):
            raise refusals.method_not_allowed()

    def answer(self, question: Question) -> JSON:
        """The review with its status. Raises `Refused` for one that makes no sense."""
        kind, review = self._kinds[question.target.group, question.target.plural]
        version = question.version
        sent = (question.body.get("apiVersion") or version, question.body.get("kind") or kind)
        if sent != (version, kind):
            raise refusals.bad_request(f"the body is a {sent[1]} of {sent[0]}, not a {kind} of {version}")
        body = {**question.body, "apiVersion": version, "kind": kind}
        wrong = _decoder(version, kind).findings(msgspec.json.encode(body), body).error
        if wrong:
            raise refusals.bad_request(
                f'{kind} in version "{question.target.version}" cannot be handled as a {kind}: {wrong}'
            )
        return {"kind": kind, "apiVersion": version, **review(msgspec.structs.replace(question, body=body))}

    def _token(self, question: Question) -> JSON:
        token = question.spec.get("token") or ""
        if not token:
            raise refusals.bad_request("token is required for TokenReview in authentication")
        wanted = question.spec.get("audiences") or [AUDIENCE]
        try:
            user = self._authenticator.user(f"Bearer {token}", None)
        except Refused:
            return _reviewed(question, {"user": {}})
        if AUDIENCE not in wanted:
            return _reviewed(question, {"user": {}})
        found: JSON = {"authenticated": True, "user": _info(user), "audiences": [AUDIENCE]}
        return _reviewed(question, found)


def may(user: User, spec: JSON) -> bool:
    """Whether the server would let somebody do what a review names."""
    if user.master:
        return True
    named = "system:authenticated" in user.groups
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return path.get("verb") == "get" and path.get("path") in PUBLIC
    asked = spec["resourceAttributes"]
    own = asked.get("resource") in _SELF and asked.get("verb") == "create"
    return named and own and asked.get("group") in (AUTHENTICATION, AUTHORIZATION)


def _who(question: Question) -> JSON:
    return {
        "metadata": {"creationTimestamp": question.now},
        "status": {"userInfo": _info(question.user)},
    }


def _info(user: User) -> JSON:
    told: JSON = {"username": user.name}
    if user.uid:
        told["uid"] = user.uid
    if user.groups:
        told["groups"] = list(user.groups)
    if user.extra:
        told["extra"] = {name: list(values) for name, values in user.extra.items()}
    return told


def _own_access(question: Question) -> JSON:
    _check(question, _attributes(question.spec))
    return _reviewed(question, {"allowed": may(question.user, question.spec)})


def _access(question: Question) -> JSON:
    _check(question, [*_attributes(question.spec), *_subject(question.spec)])
    return _reviewed(question, {"allowed": may(_described(question.spec), question.spec)})


def _local_access(question: Question) -> JSON:
    spec, namespace = question.spec, question.target.namespace
    found = [*_attributes(spec), *_subject(spec)]
    if spec.get("nonResourceAttributes") is not None:
        shown = internal(spec["nonResourceAttributes"], "Path Verb")
        found.append(invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    _check(question, found)
    if spec["resourceAttributes"].get("namespace", "") != namespace:
        raise refusals.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    answer = _reviewed(question, {"allowed": may(_described(spec), spec)})
    answer["metadata"]["namespace"] = namespace
    return answer


def _rules(question: Question) -> JSON:
    if not question.spec.get("namespace"):
        raise refusals.bad_request("no namespace on request")
    everything: JSON = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    resources: list[JSON] = [
        {
            "verbs": ["create"],
            "apiGroups": [AUTHORIZATION],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {"verbs": ["create"], "apiGroups": [AUTHENTICATION], "resources": ["selfsubjectreviews"]},
    ]
    paths: list[JSON] = [{"verbs": ["get"], "nonResourceURLs": sorted(PUBLIC)}]
    if question.user.master:
        resources.insert(0, everything)
        paths.insert(0, {"verbs": ["*"], "nonResourceURLs": ["*"]})
    return {
        "metadata": {},
        "spec": {},
        "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False},
    }


def _described(spec: JSON) -> User:
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()))


def _attributes(spec: JSON) -> list[Problem]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        told = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", internal(path, "Path Verb"), told)]
    if resource is None and path is None:
        told = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, told)]
    return []


def _subject(spec: JSON) -> list[Problem]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def _check(question: Question, problems: list[Problem]) -> None:
    if not problems:
        return
    group = question.target.group
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    # The real server names no kind here.
    text = f'.{group} "" is invalid: {summary(problems)}'
    raise Refused(422, text, reason="Invalid", details={"group": group, "causes": causes})


@cache
def _decoder(version: str, kind: str) -> Decoder:
    return Decoder(types_of(version, kind))


@cache
def _tracked(version: str, kind: str) -> Tracked:
    return tracked(version, kind, types_of(version, kind))


def _reviewed(question: Question, status: JSON) -> JSON:
    """The review as it came, with its status; whoever sent it owns its fields, as everywhere."""
    metadata = dict(question.body.get("metadata") or {})
    sent = {**question.body, "metadata": metadata}
    managed = updated(
        None, sent, _tracked(question.version, sent["kind"]), manager=question.manager, now=question.now
    )
    if managed:
        metadata["managedFields"] = managed
    return {"metadata": metadata, "spec": question.spec, "status": status}

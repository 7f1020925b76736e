"""Requests that show what a server allows to whom, and what a real kube-apiserver responded to each.

Requests are made as other users by impersonation; `$NS` stands for a new namespace, which also keeps the names of
cluster-scoped objects apart. `hack/access_cases.py` records the responses in `tests/data/access.json`.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from gangline.api.meta import JSON

RECORDED = Path(__file__).parents[2] / "data" / "access.json"
RBAC, REVIEWS = "/apis/rbac.authorization.k8s.io/v1", "/apis/authorization.k8s.io/v1"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CORE, LOCAL = "/api/v1/namespaces/$NS", f"{RBAC}/namespaces/$NS"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
USERS = {"admin": ("system:masters",), "carol": ()}
"""Users with a token. Carol may nothing at first; her rights to impersonate come and go."""
SETTLE_SECONDS = 5.0
"""How long a real server may need to notice a new role: it reads roles from a cache."""
RECORDING_PAUSE = 1.0


class AccessStep(msgspec.Struct, frozen=True):
    """One request."""

    path: str
    method: str = "GET"
    body: JSON | None = None
    headers: tuple[tuple[str, str], ...] = ()
    token: str = "admin-token"
    content_type: str = "application/json"

    @property
    def text(self) -> str:
        """The request in a line, for test reports."""
        sent = "" if self.body is None else f" {json.dumps(self.body)}"
        return f"{self.method} {self.path} {' '.join(f'{n}={v}' for n, v in self.headers)}{sent}"


def get(path: str, user: str = "", *groups: str) -> AccessStep:
    return AccessStep(path, headers=_as(user, groups))


def send(method: str, path: str, body: JSON, user: str = "", *groups: str, media: str = "") -> AccessStep:
    return AccessStep(path, method, body, _as(user, groups), content_type=media or "application/json")


def post(path: str, body: JSON, user: str = "", *groups: str) -> AccessStep:
    return send("POST", path, body, user, *groups)


def _as(user: str, groups: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return (*((("Impersonate-User", user),) if user else ()), *(("Impersonate-Group", group) for group in groups))


def rule(verbs: str, groups: str, resources: str, *names: str) -> JSON:
    """A rule of a role; lists are separated by spaces, and `core` is the core group."""
    api_groups = ["" if group == "core" else group for group in groups.split()]
    rule: JSON = {"verbs": verbs.split(), "apiGroups": api_groups, "resources": resources.split()}
    return {**rule, "resourceNames": list(names)} if names else rule


def role(name: str, *rules: JSON, **metadata: Any) -> JSON:
    return {"metadata": {"name": name, **metadata}, "rules": list(rules)}


def binding(name: str, role: str, *subjects: str, kind: str = "ClusterRole") -> JSON:
    """A binding; subjects are `User name`, `Group name`, `ServiceAccount name` or `ServiceAccount namespace/name`."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": list(map(_subject, subjects))}


def _subject(text: str) -> JSON:
    kind, name = text.split()
    if kind != "ServiceAccount":
        return {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    namespace, _, name = name.rpartition("/")
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def all_steps() -> list[AccessStep]:
    """All requests, in order."""
    parts = (_denials(), _missing_roles(), _decisions(), _reviews(), _impersonation(), _escalation(), _aggregation())
    return [step for part in parts for step in part]


def _denials() -> Iterator[AccessStep]:
    paths = [
        "/api/v1/pods",
        "/api/v1/nodes/n",
        "/api/v1/unknowns",
        "/api/v1/namespaces",
        "/api/v1/watch/pods",
        "/metrics",
        "/logs",
        "/foo/bar",
        "/debug/pprof",
        "/openapi/v2",
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/version",
        "/healthz",
        "/livez/ping",
        "/readyz",
        "/",
        "/apis/nope.io",
        "/apis/nope.io/v1",
        "/apis/nope.io/v1/things",
        "/api/v1/",
        "/metrics/<x>&",
        "/api/v1/nodes/n/proxy/metrics",
        "/api/v1/watch/namespaces/$NS/pods",
        "/api/v1/watch/namespaces/$NS/pods/x",
        "/apis/apps/v1/namespaces/$NS/deployments/d",
        "/apis/apps/v1/namespaces/$NS/deployments/d/scale",
        "/apis/nope.io/v1/namespaces/$NS/things/t",
    ]
    inside = [
        "",
        "/status",
        "/pods",
        "/pods/x",
        "/pods/x/log",
        "/pods/x/status",
        "/pods?watch=1",
        "/pods?fieldSelector=metadata.name%3Dabc",
        "/pods?fieldSelector=metadata.name%3Dabc,status.phase%3DRunning",
        "/pods?watch=true&fieldSelector=metadata.name=abc",
        "/pods?fieldSelector=metadata.name%21%3Dabc",
        "/pods/x?watch=1",
        "/pods/x/proxy/a/b/c",
        "/services/http:x:80/proxy/a",
        "/pods/a%22b",
    ]
    yield from (get(path, "jane-$NS") for path in (*paths, *(CORE + path for path in inside)))
    yield get("/api/v1/pods", 'we"ird<x>&')
    for path in ("namespaces/$NS/pods/x", "nodes/x", ""):
        yield get(f"/api/v1/proxy/{path}", "jane-$NS")
    yield get("/api/v1/watch", "jane-$NS")
    yield AccessStep(f"{CORE}/pods", "HEAD")
    for option in ("limit=abc", "timeoutSeconds=x", "labelSelector=a%20in%20((", "fieldSelector=b"):
        yield get(f"{CORE}/pods?fieldSelector=metadata.name%3Dabc&{option}", "jane-$NS")
    public = "/api /version /version/ /healthz /livez /readyz /apis / /openapi/v3 /livez/ping /api/v1/pods"
    yield from (AccessStep(path, token="") for path in public.split())
    yield AccessStep(WHOAMI, "POST", {}, token="")
    yield AccessStep("/healthz", "POST", {}, token="")
    for method in ("PUT", "PATCH", "POST", "DELETE"):
        inside = ["/configmaps", "/configmaps/x", "/pods/x/eviction", "/finalize"]
        for path in (CORE, *(CORE + part for part in inside), "/api/v1/configmaps", "/metrics"):
            yield send(method, path, {}, "jane-$NS")
        yield send(method, "/api/v1/watch/namespaces/$NS/pods", {}, "jane-$NS")


def _missing_roles() -> Iterator[AccessStep]:
    yield post(f"{LOCAL}/rolebindings", binding("gone-role", "gone", "User joe-$NS", kind="Role"))
    yield post(f"{LOCAL}/rolebindings", binding("gone-cluster-role", "gone-$NS", "User jack-$NS"))
    attributes = {"verb": "get", "resource": "pods", "namespace": "$NS"}
    for user in ("joe-$NS", "jack-$NS"):
        yield get(f"{CORE}/pods", user)
        yield post(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}, user)
        yield post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "$NS"}}, user)
        yield post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "other-$NS"}}, user)


def _decisions() -> Iterator[AccessStep]:
    rules = (
        rule("get list", "core apps", "pods deployments"),
        rule("*", "core", "secrets", "a", "b"),
        rule("get", "*", "*/scale pods/log"),
        {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*", "/foo*"]},
    )
    yield post(f"{RBAC}/clusterroles", role("reader-$NS", *rules))
    local_subjects = ("Group devs-$NS", "User mary-$NS", "ServiceAccount bot")
    yield post(f"{LOCAL}/rolebindings", binding("local", "reader-$NS", *local_subjects))
    cluster_subjects = ("User web-$NS", "ServiceAccount $NS/bot2")
    yield post(f"{RBAC}/clusterrolebindings", binding("urls-$NS", "reader-$NS", *cluster_subjects))
    resources: tuple[JSON, ...] = (
        {"verb": "get", "resource": "pods", "namespace": "$NS"},
        {"verb": "get", "resource": "pods"},
        {"verb": "list", "group": "apps", "resource": "deployments", "namespace": "$NS", "name": "x"},
        {"verb": "delete", "resource": "secrets", "namespace": "$NS", "name": "a"},
        {"verb": "delete", "resource": "secrets", "namespace": "$NS", "name": "c"},
        {"verb": "list", "resource": "secrets", "namespace": "$NS"},
        {"verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale", "namespace": "$NS"},
        {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "$NS", "name": "q"},
        {"verb": "get", "resource": "pods", "subresource": "exec", "namespace": "$NS"},
        {"verb": "*", "resource": "pods", "namespace": "$NS"},
        {"verb": "get", "resource": "*", "namespace": "$NS"},
        {"verb": "get", "group": "*", "resource": "pods", "namespace": "$NS"},
        {},
    )
    paths = (
        ("get", "/metrics"),
        ("get", "/logs"),
        ("get", "/logs/a/b"),
        ("get", "/foobar"),
        ("post", "/foo"),
        ("", ""),
    )
    account = "system:serviceaccount:$NS:bot"
    for user in ("mary-$NS", "web-$NS", account, f"{account}2", "other"):
        yield from (review({"user": user, "resourceAttributes": attributes}) for attributes in resources)
        for verb, path in paths:
            yield review({"user": user, "nonResourceAttributes": {"verb": verb, "path": path}})
    yield review({"groups": ["devs-$NS"], "resourceAttributes": resources[0]})
    yield review({"user": "x", "groups": ["system:masters"], "resourceAttributes": resources[0]})
    extra = {"uid": "7", "extra": {"a": ["b"]}}
    yield review({"user": "x", "groups": ["devs-$NS"], **extra, "resourceAttributes": resources[0]})
    for user in ("mary-$NS", "web-$NS", ""):
        yield post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "$NS"}}, user)


def review(spec: JSON) -> AccessStep:
    return post(f"{REVIEWS}/subjectaccessreviews", {"spec": spec})


def _reviews() -> Iterator[AccessStep]:
    pods: JSON = {"verb": "list", "resource": "pods", "namespace": "$NS"}
    yield review({"resourceAttributes": {"verb": "get"}})
    yield review({"user": "u"})
    yield review({"user": "u", "resourceAttributes": {}, "nonResourceAttributes": {"verb": "get", "path": "/"}})
    selectors: tuple[JSON, ...] = (
        {"fieldSelector": {"rawSelector": "spec.nodeName=a"}, "labelSelector": {"rawSelector": "a=b"}},
        {"fieldSelector": {"rawSelector": "spec.nodeName"}, "labelSelector": {"rawSelector": "a in (("}},
        {"fieldSelector": {}, "labelSelector": {}},
        {"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "x", "operator": "In", "values": ["1"]}]}},
        {
            "fieldSelector": {"requirements": [{"key": "", "operator": "In", "values": ["-"]}]},
            "labelSelector": {"requirements": [{"key": "-x-", "operator": "In", "values": ["-"]}]},
        },
        {
            "fieldSelector": {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Odd"}]},
            "labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Odd"}]},
        },
    )
    operators = ("In 1", "In 1 2", "In", "Exists", "Exists x", "NotIn 1", "NotIn 1 2", "DoesNotExist", "Odd 1", "")
    for words in (operator.split(" ") for operator in operators):
        selector = {"requirements": [{"key": "x", "operator": words[0], "values": words[1:]}]}
        selectors += ({"fieldSelector": selector}, {"labelSelector": selector})
    yield from (review({"user": "mary-$NS", "resourceAttributes": {**pods, **selector}}) for selector in selectors)
    locally = f"{REVIEWS}/namespaces/$NS/localsubjectaccessreviews"
    for namespace in ("$NS", "", "other"):
        metadata = {"namespace": namespace} if namespace else {}
        yield post(locally, {"metadata": metadata, "spec": {"user": "mary-$NS", "resourceAttributes": pods}})
    yield post(locally, {"spec": {"user": "mary-$NS", "resourceAttributes": {"verb": "get"}}})
    yield post(locally, {"spec": {"user": "mary-$NS", "nonResourceAttributes": {"verb": "get", "path": "/"}}})
    yield post(f"{REVIEWS}/localsubjectaccessreviews", {"spec": {}})
    for plural in ("subjectaccessreviews", "selfsubjectaccessreviews"):
        path, spec = f"{REVIEWS}/{plural}", {"user": "u", "resourceAttributes": {"verb": "get"}}
        yield post(path, {"metadata": {"name": "x"}, "spec": spec})
        yield post(path, {"metadata": {"labels": {"a": "b"}}, "spec": spec})
        yield post(path, {"kind": "Pod", "apiVersion": "v1"})
        yield post(path, {"spec": {"bogus": 1}})
        yield post(f"{path}?fieldValidation=Strict", {"spec": {"bogus": 1, **spec}})
        yield from (get(path), get(f"{path}/x"), get(path, "jane-$NS"))
    yield post(f"{REVIEWS}/subjectaccessreviews", {"spec": {}}, "jane-$NS")
    yield post(f"{REVIEWS}/selfsubjectrulesreviews", {})
    yield post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {}})


def _impersonation() -> Iterator[AccessStep]:
    account = "system:serviceaccount:$NS:bot"
    wishes: tuple[tuple[tuple[str, str], ...], ...] = (
        (("User", "jane"),),
        (("User", "jane"), ("Group", "g")),
        (("User", "jane"), ("Uid", "9")),
        (("User", "jane"), ("Extra-Scopes", "a"), ("Extra-Scopes", "b")),
        (("User", account),),
        (("User", account), ("Group", "g")),
        (("User", "mark"),),
        (("User", "jane"), ("Group", "system:masters")),
    )
    others: tuple[tuple[tuple[str, str], ...], ...] = (
        (("User", "jane"), ("Group", "g1"), ("Group", "g2"), ("Uid", "7"), ("Extra-Why%2FSo", "a"), ("Extra-X", "y")),
        (("User", "system:anonymous"),),
        (("User", "system:anonymous"), ("Group", "g")),
        (("User", "x"), ("Group", "system:unauthenticated")),
        (("User", "system:serviceaccount:$NS:Bad_Name"),),
        (("User", "system:serviceaccount:a:b:c"),),
        (("Group", "g"),),
        (("Group", "g"), ("Group", "h"), ("Uid", "5")),
        (("Extra-A", "b"),),
        (("Uid", "5"),),
        (("User", ""), ("Group", "<g>")),
    )
    yield from (_impersonate(wish) for wish in (*wishes, *others))
    yield from (_impersonate(wish, "carol-token") for wish in wishes)
    grants = (
        (rule("impersonate", "core", "users", "jane"), rule("impersonate", "core", "serviceaccounts")),
        (
            rule("impersonate", "core", "groups", "g"),
            rule("impersonate", "authentication.k8s.io", "userextras/scopes", "a"),
            rule("impersonate", "authentication.k8s.io", "uids", "9"),
        ),
    )
    for number, rules in enumerate(grants):
        name = f"actor-{number}-$NS"
        yield post(f"{RBAC}/clusterroles", role(name, *rules))
        yield post(f"{RBAC}/clusterrolebindings", binding(name, name, "User carol"))
        yield from (_impersonate(wish, "carol-token") for wish in wishes)
    yield from (AccessStep(f"{RBAC}/clusterrolebindings/actor-{number}-$NS", "DELETE") for number in range(2))


def _impersonate(wish: tuple[tuple[str, str], ...], token: str = "admin-token") -> AccessStep:
    headers = tuple((f"Impersonate-{name}", value) for name, value in wish)
    return AccessStep(f"{WHOAMI}?a=b", "POST", {}, headers, token)


def _escalation() -> Iterator[AccessStep]:
    edith = ("edith-$NS", "g1-$NS")
    rbac = "rbac.authorization.k8s.io"
    pods, nodes = rule("get", "core", "pods"), rule("get", "core", "nodes")
    author = (
        rule("get create update patch delete", rbac, "roles rolebindings"),
        rule("get list", "core", "pods"),
        rule("get", "core", "secrets", "a"),
    )
    roles, bindings = f"{LOCAL}/roles", f"{LOCAL}/rolebindings"
    yield post(f"{RBAC}/clusterroles", role("author-$NS", *author))
    yield post(bindings, binding("author", "author-$NS", "User edith-$NS"))
    yield post(roles, role("ok", pods), *edith)
    named = (rule("get", "core", "pods", "z"), rule("get", "core", "secrets", "a"))
    yield post(roles, role("names", *named), *edith)
    many = rule("get delete create", "core apps", "pods secrets")
    yield post(roles, role("bad", many, rule("get", "core", "secrets", "a", "b")), *edith)
    yield post(roles, role("bad", rule("*", "*", "*")), *edith)
    yield post(roles, role("bad", rule("get", "core", "pods/log")), *edith)
    yield post(roles, {"metadata": {"generateName": "bad-"}, "rules": [nodes]}, *edith)
    yield post(roles, role("BAD NAME/", rule("", "core", "pods/log")), *edith)
    yield post(roles, role("bad", {"verbs": ["get"], "nonResourceURLs": ["/x"]}), *edith)
    yield send("PUT", f"{roles}/ok", role("ok", pods, rule("watch", "core", "pods")), *edith)
    yield send("PATCH", f"{roles}/ok", {"metadata": {"labels": {"x": "y"}}}, *edith, media=MERGE)
    yield post(roles, role("strong", nodes))
    for change in ({"labels": {"x": "y"}}, {"finalizers": ["x.io/f"]}, {"finalizers": None}):
        yield send("PATCH", f"{roles}/strong", {"metadata": change}, *edith, media=MERGE)
    yield send("PUT", f"{roles}/new", role("new", nodes), *edith)
    yield send("PUT", f"{roles}/new", role("new", pods), *edith)
    applied = {"apiVersion": f"{rbac}/v1", "kind": "Role", **role("applied", nodes)}
    yield send("PATCH", f"{roles}/applied?fieldManager=x", applied, *edith, media=APPLY)
    yield post(bindings, binding("b1", "ok", "User x", kind="Role"), *edith)
    yield post(bindings, binding("b2", "strong", "User x", kind="Role"), *edith)
    yield post(bindings, binding("b3", "missing", "User x", kind="Role"), *edith)
    yield post(bindings, binding("b4", "missing", "User x"), *edith)
    yield post(bindings, binding("b5", "view", "User x"), *edith)
    yield post(bindings, binding("b6", "view", "User x", kind="Bogus"), *edith)
    yield post(bindings, binding("b7", "cluster-admin", "User x"), *edith)
    yield post(f"{RBAC}/clusterroles", role("c1-$NS"), *edith)
    yield post(f"{RBAC}/clusterrolebindings", binding("c1-$NS", "view", "User x"), *edith)
    yield send("PATCH", f"{bindings}/b1", {"subjects": [_subject("User y")]}, *edith, media=MERGE)
    yield post(bindings, binding("gone", "gone", "User edith-$NS", kind="Role"))
    yield post(roles, role("bad", nodes), *edith)
    powers = (rule("escalate", rbac, "roles", "named"), rule("bind", rbac, "clusterroles", "view"))
    yield post(roles, role("powers", *powers))
    yield post(bindings, binding("powers", "powers", "User edith-$NS", kind="Role"))
    yield post(roles, role("named", nodes), *edith)
    yield send("PUT", f"{roles}/named", role("named", nodes), *edith)
    yield post(bindings, binding("b8", "view", "User x"), *edith)
    yield post(bindings, binding("b9", "edit", "User x"), *edith)
    manage = rule("get create update patch delete", rbac, "clusterroles clusterrolebindings")
    yield post(f"{RBAC}/clusterroles", role("manage-$NS", manage))
    yield post(f"{RBAC}/clusterrolebindings", binding("manage-$NS", "manage-$NS", "User edith-$NS"))
    yield post(f"{RBAC}/clusterroles", role("c1-$NS", rule("get", rbac, "clusterroles")), *edith)
    aggregation = {"clusterRoleSelectors": [{"matchLabels": {"a-$NS": "b"}}]}
    for name, user in (("c2-$NS", edith), ("all-$NS", ())):
        yield post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "aggregationRule": aggregation}, *user)
    labels = {"metadata": {"labels": {"x": "y"}}}
    yield send("PATCH", f"{RBAC}/clusterroles/all-$NS", labels, *edith, media=MERGE)
    urls = {"verbs": ["get", "post"], "nonResourceURLs": ["/metrics", "/x/*"]}
    yield post(f"{RBAC}/clusterroles", role("c4-$NS", urls), *edith)
    for granted in ("cluster-admin", "none", "c1-$NS"):
        yield post(f"{RBAC}/clusterrolebindings", binding("c5-$NS", granted, "User x"), *edith)
    groups, resources = f"core {rbac} coordination.k8s.io", "configmaps services roles leases"
    yield post(f"{RBAC}/clusterroles", role("update-$NS", rule("update patch get", groups, resources)))
    yield post(bindings, binding("update", "update-$NS", "User upton-$NS"))
    for port in (80, 0):
        service = {"metadata": {"name": "s1"}, "spec": {"ports": [{"port": port}]}}
        yield send("PUT", f"{CORE}/services/s1", service, "upton-$NS")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1"}}
    yield send("PUT", f"{CORE}/configmaps/c1", config, "upton-$NS")
    yield send("PATCH", f"{CORE}/configmaps/c1?fieldManager=x", config, "upton-$NS", media=APPLY)
    yield send("PATCH", f"{CORE}/configmaps/c1", {"data": {}}, "upton-$NS", media=MERGE)
    lease = {"metadata": {"name": "l"}, "spec": {}}
    yield send("PUT", "/apis/coordination.k8s.io/v1/namespaces/$NS/leases/l", lease, "upton-$NS")
    yield from (send("PUT", f"{roles}/r", role("r", *rules), "upton-$NS") for rules in ((), (nodes,)))


def _aggregation() -> Iterator[AccessStep]:
    roles, things = f"{RBAC}/clusterroles", rule("get", "x.io", "things")
    labels = {"a-$NS": "b"}
    yield post(roles, role("part1-$NS", rule("get", "core", "pods"), things, labels=labels))
    yield post(roles, role("part0-$NS", things, rule("list", "x.io", "things"), labels=labels))
    yield get(f"{roles}/all-$NS")
    yield AccessStep(f"{roles}/part1-$NS", "DELETE")
    yield get(f"{roles}/all-$NS")
    by_hand = {"rules": [rule("get", "hand.io", "made")]}
    yield send("PATCH", f"{roles}/all-$NS", by_hand, media=MERGE)
    yield get(f"{roles}/all-$NS")
    label = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    yield post(roles, role("jobs-$NS", rule("get list", "jobs-$NS.io", "jobs"), labels=label))
    yield from (get(f"{roles}/{name}") for name in ("admin", "edit", "view"))
    yield AccessStep(f"{roles}/jobs-$NS", "DELETE")
    yield get(f"{roles}/admin")


class AccessPlayer:
    """Sends requests to a server."""

    def __init__(self, url: str, ca: Path, namespace: str) -> None:
        self._url, self._context, self._namespace = url, ssl.create_default_context(cafile=ca), namespace

    async def play(self, steps: Sequence[AccessStep], wanted: Sequence[JSON]) -> list[JSON]:
        """The outcome of every request.

        A request that does not have its wanted outcome is repeated for some seconds if it changed nothing: servers need
        time to notice new roles.
        """
        async with self.session() as session:
            pairs = zip(steps, wanted, strict=True)
            return [await self._settled(session, step, outcome) for step, outcome in pairs]

    async def record(self, steps: Sequence[AccessStep]) -> list[JSON]:
        """The outcome of every request, with pauses in which the server notices new roles."""
        async with self.session() as session:
            outcomes = []
            for step in steps:
                outcomes.append(await self.send(session, step))
                await asyncio.sleep(RECORDING_PAUSE if step.method != "GET" and step.path.startswith(RBAC) else 0)
            return outcomes

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session, with the namespace and without what it leaves behind."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context)) as session:
            namespace = {"metadata": {"name": self._namespace}}
            assert (await self.send(session, post("/api/v1/namespaces", namespace)))["code"] == 201
            try:
                yield session
            finally:
                await self._clean_up(session)

    async def _settled(self, session: aiohttp.ClientSession, step: AccessStep, wanted: JSON) -> JSON:
        loop = asyncio.get_running_loop()
        deadline, is_read = loop.time() + SETTLE_SECONDS, step.method == "GET" or "review" in step.path
        outcome = await self.send(session, step)
        while outcome != wanted and loop.time() < deadline and (is_read or outcome["code"] >= 400):
            await asyncio.sleep(0.05)
            outcome = await self.send(session, step)
        return outcome

    async def _clean_up(self, session: aiohttp.ClientSession) -> None:
        for plural in ("clusterrolebindings", "clusterroles"):
            names = [
                step.body["metadata"]["name"] for step in all_steps() if step.path == f"{RBAC}/{plural}" and step.body
            ]
            for name in dict.fromkeys(names):
                await self.send(session, AccessStep(f"{RBAC}/{plural}/{name}", "DELETE"))
        await self.send(session, AccessStep(CORE, "DELETE"))

    async def send(self, session: aiohttp.ClientSession, step: AccessStep) -> JSON:
        headers = [(name, self._concrete(value)) for name, value in step.headers]
        if step.token:
            headers.append(("Authorization", f"Bearer {step.token}"))
        body = None if step.body is None else self._concrete(json.dumps(step.body))
        if body is not None:
            headers.append(("Content-Type", step.content_type))
        url = URL(f"{self._url}{self._concrete(step.path)}", encoded=True)
        async with session.request(step.method, url, data=body, headers=headers) as response:
            found = outcome(response.status, (await response.text()).replace(self._namespace, "$NS"))
            is_opaque = response.headers.get("X-Content-Type-Options") == "nosniff"
            return {**found, "nosniff": True} if is_opaque else found

    def _concrete(self, text: str) -> str:
        return text.replace("$NS", self._namespace)


def outcome(code: int, text: str) -> JSON:
    """What counts of a response: its code, the Status of an error, the answer of a review, the rules of a role."""
    try:
        body = json.loads(text)
    except ValueError:
        return {"code": code, "text": text} if code >= 300 else {"code": code}
    kind = body.get("kind", "")
    if kind == "Status" and body["status"] == "Failure":
        message = re.sub(r'"time":"[^"]*"', '"time":""', body["message"])
        details = {name: value for name, value in (body.get("details") or {}).items() if name != "causes"}
        return {"code": code, "message": message, "reason": body.get("reason", ""), "details": details}
    if kind.endswith("Review"):
        for name in ("resourceRules", "nonResourceRules"):
            if name in body["status"]:  # a real server's order differs from time to time
                body["status"][name].sort(key=json.dumps)
        return {"code": code, "spec": body.get("spec"), "status": body["status"]}
    if kind == "ClusterRole" and code == 200:
        return {"code": code, "rules": body["rules"]}
    return {"code": code}

"""Random patches and applies, played on a real kube-apiserver and on our own functions: both must come to the same.

What the server answers is the yardstick for the object, for `managedFields` and for every error. Ours has no defaults
here, so fields that the server adds by itself (`DEFAULTS`) are left out of the comparison.
"""

import json
import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.apply.apply import (
    LAST_APPLIED_ANNOTATION,
    ApplyConflict,
    ApplyResult,
    server_side_apply,
)
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.errors import StatusError
from gangline.apiserver.patch.json_patch import deep_copy, json_patch, merge_patch
from gangline.apiserver.patch.strategic import strategic_merge
from gangline.schema.typed.openapi import builtin_type, crd_type
from support.servers.real import RealAnswer, RealServer

ROUNDS = int(os.environ.get("GANGLINE_FUZZ_ROUNDS", "6"))
STEPS = 14

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

DEFAULTS = {
    "imagePullPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "resources",
    "protocol",
    "targetPort",
    "type",
    "rollingUpdate",
    "generation",
    "mode",
    "defaultMode",
    "apiVersion",
    "nodePort",
}

Dice = random.Random


def some(dice: Dice, of: dict[str, Callable[[], Any]], at_least: int = 0) -> JSON:
    names = dice.sample(sorted(of), dice.randint(at_least, len(of)))
    return {name: of[name]() for name in names}


def words(dice: Dice, letters: str = "abcd") -> JSON:
    return {letter: dice.choice("xyz") for letter in dice.sample(letters, dice.randint(0, 3))}


def env(dice: Dice) -> list[JSON]:
    return [{"name": name, "value": dice.choice("123")} for name in dice.sample("EFGH", dice.randint(0, 3))]


def ports(dice: Dice) -> list[JSON]:
    numbers = dice.sample([80, 81, 82, 83], dice.randint(0, 3))
    return [
        {"containerPort": number, "protocol": dice.choice(["TCP", "UDP"])}
        | ({"name": f"p{number}"} if dice.random() < 0.5 else {})
        for number in numbers
    ]


def container(dice: Dice, name: str) -> JSON:
    return {"name": name, "image": dice.choice(["i:1", "i:2", "i:3"])} | some(
        dice,
        {
            "env": lambda: env(dice),
            "ports": lambda: ports(dice),
            "args": lambda: [dice.choice("pqr") for _ in range(dice.randint(0, 2))],
            "resources": lambda: {"limits": some(dice, {"cpu": lambda: dice.choice("12"), "memory": lambda: "1Gi"})},
            "volumeMounts": lambda: [
                {"mountPath": f"/{place}", "name": "v"} for place in dice.sample("mn", dice.randint(0, 2))
            ],
            "workingDir": lambda: dice.choice(["/a", "/b"]),
            "stdin": lambda: True,
        },
    )


def pod_spec(dice: Dice, at_least: int = 0) -> JSON:
    names = dice.sample("abc", dice.randint(at_least, 3))
    return (
        {"containers": [container(dice, name) for name in names]}
        | some(
            dice,
            {
                "nodeSelector": lambda: words(dice),
                "tolerations": lambda: [
                    {"key": key, "operator": "Exists"} for key in dice.sample("kl", dice.randint(0, 2))
                ],
                "imagePullSecrets": lambda: [{"name": name} for name in dice.sample("st", dice.randint(0, 2))],
                "hostAliases": lambda: [
                    {"ip": ip, "hostnames": ["h"]} for ip in dice.sample(["1.1.1.1", "2.2.2.2"], 1)
                ],
                "securityContext": lambda: some(dice, {"runAsUser": lambda: dice.choice([1, 2])}),
            },
        )
        | {"volumes": [{"name": "v", "emptyDir": {}}]}
    )


def metadata(dice: Dice) -> JSON:
    return some(
        dice,
        {
            "labels": lambda: words(dice),
            "annotations": lambda: words(dice),
            "finalizers": lambda: [f"example.com/{letter}" for letter in dice.sample("fgh", dice.randint(0, 2))],
        },
    )


def deployment(dice: Dice) -> JSON:
    return {
        "metadata": metadata(dice),
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod_spec(dice, 1)},
        }
        | some(
            dice,
            {"replicas": lambda: dice.randint(0, 3), "paused": lambda: True, "minReadySeconds": lambda: 5},
        ),
    }


def config_map(dice: Dice) -> JSON:
    return {"metadata": metadata(dice)} | some(dice, {"data": lambda: words(dice), "binaryData": lambda: {"q": "eA=="}})


def service(dice: Dice) -> JSON:
    return {
        "metadata": metadata(dice),
        "spec": {
            "clusterIP": "None",
            "ports": [
                {"port": port, "protocol": protocol, "name": f"{protocol.lower()}{port}"}
                for port in dice.sample([70, 71, 72], dice.randint(1, 3))
                for protocol in [dice.choice(["TCP", "UDP"])]
            ],
        }
        | some(dice, {"selector": lambda: words(dice), "publishNotReadyAddresses": lambda: True}),
    }


def thing(dice: Dice) -> JSON:
    def free(depth: int) -> Any:
        if depth == 0 or dice.random() < 0.3:
            return dice.choice([1, 2.5, True, "s", [1, 2], ["a"], {}])
        return {name: free(depth - 1) for name in dice.sample("uvw", dice.randint(0, 3))}

    return {
        "metadata": metadata(dice),
        "spec": some(
            dice,
            {
                "size": lambda: dice.randint(0, 3),
                "roles": lambda: [
                    {"name": name}
                    | some(dice, {"replicas": lambda: dice.randint(0, 2), "image": lambda: dice.choice("xy")})
                    for name in dice.sample("abcd", dice.randint(0, 4))
                ],
                "ports": lambda: [
                    {"port": port} | some(dice, {"protocol": lambda: dice.choice(["TCP", "UDP"]), "name": lambda: "n"})
                    for port in dice.sample([1, 2, 3], dice.randint(0, 3))
                ],
                "tags": lambda: dice.sample(["a", "b", "<c>", "d"], dice.randint(0, 4)),
                "args": lambda: [dice.choice("xy") for _ in range(dice.randint(0, 2))],
                "whole": lambda: words(dice),
                "granular": lambda: words(dice),
                "free": lambda: {name: free(2) for name in dice.sample("klm", dice.randint(0, 3))},
            },
        ),
    }


THING_SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0},
                "mode": {"type": "string", "default": "auto"},
                "roles": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "replicas": {"type": "integer"},
                            "image": {"type": "string"},
                        },
                    },
                },
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {
                        "type": "object",
                        "required": ["port"],
                        "properties": {
                            "port": {"type": "integer"},
                            "protocol": {"type": "string", "default": "TCP"},
                            "name": {"type": "string"},
                        },
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "args": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "granular": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


class Kind:
    def __init__(self, path: str, kind: ManagedKind, make: Callable[[Dice], JSON], *, custom: bool = False) -> None:
        self.path, self.tracked, self.make, self.custom = path, kind, make, custom


KINDS = {
    "configmaps": Kind("/api/v1", managed_kind("v1", "ConfigMap", builtin_type("v1", "ConfigMap")), config_map),
    "services": Kind("/api/v1", managed_kind("v1", "Service", builtin_type("v1", "Service")), service),
    "deployments": Kind(
        "/apis/apps/v1",
        managed_kind("apps/v1", "Deployment", builtin_type("apps/v1", "Deployment")),
        deployment,
    ),
    "things": Kind(
        "/apis/fuzz.example.com/v1",
        managed_kind("fuzz.example.com/v1", "Thing", crd_type(THING_SCHEMA), custom=True, status=False),
        thing,
        custom=True,
    ),
}


def strategic_patch(dice: Dice, wanted: JSON) -> JSON:
    """The wanted object with directives strewn in."""
    return _strewn(dice, {key: value for key, value in wanted.items() if key in ("metadata", "spec", "data")})


KEYS = {"containers": "name", "env": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name"}


def _strewn(dice: Dice, value: JSON, name: str = "") -> JSON:
    result: JSON = {}
    for key, item in value.items():
        if key in ("selector", "template", "clusterIP", "volumes"):
            result[key] = _strewn(dice, item, key) if key == "template" else item
        elif dice.random() < 0.06 and key not in (
            "cpu",
            "memory",
            "metadata",
            "name",
            "image",
            "mountPath",
            "containers",
            "spec",
            "ports",
        ):
            result[key] = None
        elif isinstance(item, dict):
            result[key] = _strewn(dice, item, key)
            if key in ("labels", "annotations", "data", "nodeSelector") and dice.random() < 0.15:
                result[key]["$patch"] = dice.choice(["replace", "delete", "merge"])
        elif isinstance(item, list) and key in KEYS:
            result |= _strewn_list(dice, key, item)
        elif key == "finalizers" and dice.random() < 0.4:
            result["$deleteFromPrimitiveList/finalizers"] = item
        else:
            result[key] = item
    return result


def _strewn_list(dice: Dice, name: str, items: list[JSON]) -> JSON:
    merge_key = KEYS[name]
    found = [_strewn(dice, item) if isinstance(item, dict) else item for item in items]
    result: JSON = {name: found}
    if dice.random() < 0.3:
        order = [{merge_key: item[merge_key]} for item in items]
        order.insert(dice.randint(0, len(order)), {merge_key: dice.choice("abcEF")})
        if dice.random() < 0.2:
            dice.shuffle(order)
        result[f"$setElementOrder/{name}"] = order
    if dice.random() < 0.25 and name != "imagePullSecrets":
        found.insert(dice.randint(0, len(found)), {"$patch": "delete", merge_key: dice.choice("abcEF")})
    if dice.random() < 0.05:
        found.append({"$patch": "replace"})
    if dice.random() < 0.03 and found:
        found[0].pop(merge_key, None)
    return result


PATHS = {
    "ConfigMap": ["/data/a", "/data/b"],
    "Service": ["/spec/ports/0", "/spec/ports/-"],
    "Deployment": [
        "/spec/replicas",
        "/spec/template/spec/containers/0/image",
        "/spec/template/spec/containers/-1/image",
    ],
    "Thing": [
        "/spec/tags/0",
        "/spec/size",
        "/spec/granular/a",
        "/spec/roles/-",
        "/spec/roles/0",
        "/spec/free/k",
    ],
}


def operations(dice: Dice, wanted: JSON) -> list[JSON]:
    paths = ["/metadata/labels", "/metadata/labels/a", "/metadata/annotations/b", *PATHS[wanted["kind"]]]
    values = {"labels": {"a": "op"}, "replicas": 2, "size": 2, "-": {"name": "op"}, "0": "op"}
    found = []
    for _ in range(dice.randint(1, 3)):
        path = dice.choice(paths)
        verb = dice.choice(["add", "add", "replace", "remove", "test", "copy", "move"])
        operation: JSON = {"op": verb, "path": path}
        if verb in ("copy", "move"):
            operation["from"] = dice.choice(paths)
        else:
            operation["value"] = values.get(path.rpartition("/")[2], "op")
        found.append(operation)
    return found


class Play:
    """One object on the real server, and the same steps by our own functions."""

    def __init__(self, server: RealServer, namespace: str, name: str, seed: int) -> None:
        self.server, self.kind = server, KINDS[name]
        self.dice = Dice(f"{name} {seed}")
        self.url = f"{self.kind.path}/namespaces/{namespace}/{name}/o{seed}"
        self.plural = self.url.rpartition("/")[0]
        self.name = f"o{seed}"
        self.many = seed % 3 == 0
        self.live: JSON | None = None

    def call(self, method: str, url: str, body: Any, content: str = "application/json") -> RealAnswer:
        return self.server.call(method, url, body, content_type=content)

    def wanted(self) -> JSON:
        made = self.kind.make(self.dice)
        made["apiVersion"], made["kind"] = self.kind.tracked.api_version, self.kind.tracked.kind
        made["metadata"]["name"] = self.name
        return made

    def step(self) -> str:
        if self.live is None:
            return self.apply() if self.dice.random() < 0.5 else self.create()
        verbs = [self.apply] * 10 + [self.patch] * 8 + [self.put] * 2 + [self.reset]
        return self.dice.choice(verbs)()

    def updater(self) -> str:
        """More names than an object keeps."""
        return f"u{self.dice.randint(1, 14 if self.many else 3)}"

    def create(self) -> str:
        body = self.wanted()
        if self.dice.random() < 0.5:
            body["metadata"].setdefault("annotations", {})[LAST_APPLIED_ANNOTATION] = json.dumps(body)
        answer = self.call("POST", f"{self.plural}?fieldManager=u1", body)
        assert answer.status == 201, answer.body
        self._updated(None, answer.body, "u1", kept=False)
        return "create"

    def put(self) -> str:
        assert self.live is not None
        manager = self.updater()
        body = self.wanted()
        body["metadata"]["resourceVersion"] = self.live["metadata"]["resourceVersion"]
        answer = self.call("PUT", f"{self.url}?fieldManager={manager}", body)
        if answer.status == 200:
            self._updated(self.live, answer.body, manager, kept=False)
        return "put"

    def patch(self) -> str:
        assert self.live is not None
        manager, wanted = self.updater(), self.wanted()
        del wanted["metadata"]["name"]
        forms = [MERGE, JSON_PATCH] if self.kind.custom else [STRATEGIC, STRATEGIC, STRATEGIC, MERGE, JSON_PATCH]
        form = self.dice.choice(forms)
        body: Any = wanted
        if form == STRATEGIC:
            body = strategic_patch(self.dice, wanted)
        elif form == JSON_PATCH:
            body = operations(self.dice, wanted)
        answer = self.call("PATCH", f"{self.url}?fieldManager={manager}", body, form)
        ours = self._patched(form, body)
        if isinstance(ours, StatusError):
            # Of several mistakes either side may meet another one first: Go visits maps at random.
            assert answer.status == ours.code, (form, body, ours.log_detail)
            return f"{form} refused"
        if answer.status != 200:  # fits, but makes an invalid object
            assert answer.status == 422, (answer.body, form, body)
            assert "is invalid" in answer.body["message"], (form, body)
            return f"{form} invalid"
        check_same(ours, answer.body, f"{form} {body}")
        self._updated(self.live, answer.body, manager)
        return form

    def reset(self) -> str:
        """Write managedFields by hand."""
        assert self.live is not None
        stored = self.live["metadata"].get("managedFields", [])
        wish: Any = self.dice.choice([[], [{}], None, stored[:1], [*stored, {"manager": "bad"}], self._handmade()])
        answer = self.call("PATCH", f"{self.url}?fieldManager=hand", {"metadata": {"managedFields": wish}}, MERGE)
        if answer.status == 200:
            self._updated(self.live, answer.body, "hand", wish)
        return f"reset {answer.status}"

    def _handmade(self) -> list[JSON]:
        key = '{ "name" : "a" }'
        fields = {
            "f:spec": {"f:roles": {f"k:{key}": {"f:image": {}}}, "x:later": {}},
            "f:data": {".": {}, "f:a": {}},
        }
        entry = {"manager": "handmade", "operation": "Update", "apiVersion": self.kind.tracked.api_version}
        return [entry | {"fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2020-01-01T00:00:00Z"}]

    def _patched(self, form: str, body: Any) -> Any:
        assert self.live is not None
        before = deep_copy(self.live)
        try:
            if form == STRATEGIC:
                return strategic_merge(self.live, body, self.kind.tracked.tree)
            return merge_patch(self.live, body) if form == MERGE else json_patch(self.live, body)
        except StatusError as refused:
            return refused
        finally:
            assert before == self.live

    def apply(self) -> str:
        manager, force = self.dice.choice(["a1", "a2", "a3", "kubectl"]), self.dice.random() < 0.6
        body = self.wanted()
        self._spoil(body)
        url = f"{self.url}?fieldManager={manager}&force={str(force).lower()}"
        answer = self.call("PATCH", url, body, APPLY)
        ours = self._applied(body, manager, force=force, now=now_of(answer.body))
        if isinstance(ours, StatusError):
            assert (answer.status, answer.body["message"]) == (ours.code, ours.message)
            return "apply refused"
        if isinstance(ours, ApplyConflict):
            assert (answer.status, answer.body["message"]) == (409, str(ours))
            assert by_text(answer.body["details"]["causes"]) == by_text(ours.causes)
            return "conflict"
        if answer.status not in (200, 201):
            assert answer.status == 422, answer.body
            assert "is invalid" in answer.body["message"]
            return "apply invalid"
        check_same(ours.object, answer.body, f"apply {body}")
        self._same_managers(ours.managed_fields, answer.body, f"apply {manager} {body}")
        self.live = answer.body
        return "apply"

    def _applied(self, body: JSON, manager: str, *, force: bool, now: str) -> ApplyResult | StatusError | ApplyConflict:
        try:
            return server_side_apply(self.live, body, self.kind.tracked, manager=manager, now=now, force=force)
        except (StatusError, ApplyConflict) as error:
            return error

    def _spoil(self, body: JSON) -> None:
        """Now and then something that cannot be applied."""
        if self.dice.random() > 0.08:
            return
        spec = body.get("spec") or body.get("data") or {}
        match self.dice.randint(0, 2):
            case 0:
                body["bogus"] = 1
            case 1:
                for value in spec.values():
                    if isinstance(value, list) and value:
                        value.append(value[0])
                        break
            case 2:
                spec["replicas"] = "many"

    def _updated(self, old: JSON | None, after: JSON, manager: str, wish: Any = None, *, kept: bool = True) -> None:
        new = deep_copy(after)
        new["metadata"]["managedFields"] = wish
        if self.kind.tracked.kind == "Service" and not kept:  # the server fills these in later
            for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                new["spec"].pop(name, None)
        ours = updated_managed_fields(old, new, self.kind.tracked, manager=manager, now=now_of(after))
        self._same_managers(ours, after, f"update by {manager}")
        self.live = after

    def _same_managers(self, ours: list[JSON], answer: JSON, what: str) -> None:
        theirs = answer["metadata"].get("managedFields", [])
        mine, others = by_text(map(timeless, ours)), by_text(map(timeless, theirs))
        assert mine == others, f"{what}\nours: {mine}\ntheirs: {others}\nbefore: {self.live}"


def timeless(entry: JSON) -> JSON:
    return {key: value for key, value in entry.items() if key != "time"}


def by_text(values: Iterable[JSON]) -> list[JSON]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def now_of(answer: JSON) -> str:
    """The time of the last change: entries are kept and merged by age."""
    return max((each.get("time", "") for each in answer["metadata"].get("managedFields", [])), default="")


def check_same(ours: Any, theirs: Any, what: str, path: str = "") -> None:
    """Ours is theirs, but for null, for what the server fills in, and for what it counts."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if (
                key in ("managedFields", "resourceVersion", "generation")
                or key[0] == "$"
                or value is None
                or (value in ({}, []) and key not in theirs)
            ):
                continue
            assert key in theirs, f"{path}.{key} is ours alone: {value} ({what})"
            check_same(value, theirs[key], what, f"{path}.{key}")
        for key in theirs:
            if (
                (key not in ours or (ours[key] is None and theirs[key]))
                and path not in ("", ".metadata")
                and key not in DEFAULTS
                and not path.endswith((".strategy", ".template.spec", "deployments.spec", ".spec"))
            ):
                raise AssertionError(f"{path}.{key} is theirs alone: {theirs[key]} ({what})")
    elif isinstance(ours, list) and isinstance(theirs, list):
        assert len(ours) == len(theirs), f"{path}: {ours} and {theirs} ({what})"
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            check_same(mine, other, what, f"{path}[{index}]")
    else:
        assert ours == theirs, f"{path}: {ours!r} and {theirs!r} ({what})"


@pytest.fixture(scope="module")
def things(real_server: RealServer) -> None:
    real_server.revive()
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": THING_SCHEMA}}
    body = {
        "metadata": {"name": "things.fuzz.example.com"},
        "spec": {"group": "fuzz.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert real_server.call("POST", url, body).status == 201
    for _ in range(500):
        if real_server.call("GET", "/apis/fuzz.example.com/v1/things").status == 200:
            return
    pytest.fail("the kind is not served")


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.usefixtures("things")
def test_random_writes_end_as_on_the_real_server(real_server: RealServer, real_namespace: str, name: str) -> None:
    for seed in range(ROUNDS):
        play = Play(real_server, real_namespace, name, seed)
        for _ in range(STEPS):
            play.step()

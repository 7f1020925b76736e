"""The ServiceAccount plugin on a running plane. Texts and objects are those that kube-apiserver 1.34 answered with."""

import asyncio
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.admission.service_account import TOKEN_MOUNT
from support.builders.objects import pod_body
from support.servers.plane import PlaneAnswer, PlaneClient, running_plane

NAMESPACE = "/api/v1/namespaces/default"
MIRROR = {"kubernetes.io/config.mirror": "x"}


async def create_account(plane: PlaneClient, name: str, **fields: object) -> None:
    metadata: JSON = {"name": name, **({"annotations": fields.pop("annotations")} if "annotations" in fields else {})}
    answer = await plane.call("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": metadata, **fields})
    assert answer.status == 201


async def create_pod(plane: PlaneClient, annotations: JSON | None = None, **spec: Any) -> PlaneAnswer:
    body = pod_body("p", **spec)
    body["metadata"]["annotations"] = annotations or {}
    return await plane.call("POST", f"{NAMESPACE}/pods", body)


async def test_pod_gets_the_default_account_and_its_token() -> None:
    async with running_plane() as plane:
        spec = (await create_pod(plane, initContainers=[{"name": "i", "image": "x"}])).body["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        (volume,) = spec["volumes"]
        assert volume["name"].startswith("kube-api-access-")
        namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
        assert volume["projected"] == {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
            "defaultMode": 420,
        }
        mount = {"name": volume["name"], "readOnly": True, "mountPath": TOKEN_MOUNT}
        for container in (*spec["initContainers"], *spec["containers"]):
            assert container["volumeMounts"] == [mount]


async def test_own_mount_at_the_path_stays_and_other_containers_get_the_token() -> None:
    own = {"name": "mine", "mountPath": TOKEN_MOUNT}
    containers = [{"name": "a", "image": "x", "volumeMounts": [own]}, {"name": "b", "image": "x"}]
    async with running_plane() as plane:
        volumes = [{"name": "mine", "emptyDir": {}}]
        spec = (await create_pod(plane, containers=containers, volumes=volumes)).body["spec"]
        assert spec["containers"][0]["volumeMounts"] == [own]
        assert spec["containers"][1]["volumeMounts"][0]["name"] == spec["volumes"][1]["name"]


@pytest.mark.parametrize(
    ("account", "pod", "is_mounted"),
    [
        ({}, False, False),
        ({"automountServiceAccountToken": False}, None, False),
        ({"automountServiceAccountToken": False}, True, True),
        ({"automountServiceAccountToken": True}, None, True),
    ],
)
async def test_pod_decides_about_its_token_before_the_account(
    account: JSON, pod: bool | None, is_mounted: bool
) -> None:
    async with running_plane() as plane:
        await create_account(plane, "bot", **account)
        wish: JSON = {} if pod is None else {"automountServiceAccountToken": pod}
        spec = (await create_pod(plane, serviceAccountName="bot", **wish)).body["spec"]
        assert ("volumes" in spec) is is_mounted


async def test_image_pull_secrets_are_those_of_the_account_unless_the_pod_has_some() -> None:
    async with running_plane() as plane:
        await create_account(plane, "bot", imagePullSecrets=[{"name": "a"}, {"name": "b"}])
        spec = (await create_pod(plane, serviceAccountName="bot")).body["spec"]
        assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        await plane.call("DELETE", f"{NAMESPACE}/pods/p", gracePeriodSeconds="0")
        spec = (await create_pod(plane, serviceAccountName="bot", imagePullSecrets=[{"name": "own"}])).body["spec"]
        assert spec["imagePullSecrets"] == [{"name": "own"}]


async def test_pod_whose_account_does_not_exist_is_refused() -> None:
    async with running_plane() as plane:
        answer = await create_pod(plane, serviceAccountName="nobody")
        assert answer.status == 403
        assert answer.body["message"] == (
            'pods "p" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
        )


async def test_pod_waits_for_the_default_account_of_a_new_namespace() -> None:
    async with running_plane() as plane:
        for number in range(5):
            path = f"/api/v1/namespaces/new-{number}/pods"
            body = {"metadata": {"name": f"new-{number}"}}
            created, pod = await asyncio.gather(
                plane.call("POST", "/api/v1/namespaces", body), plane.call("POST", path, pod_body("p"))
            )
            assert created.status == 201
            # The namespace itself is not waited for.
            assert pod.status in (201, 404)
            assert (await plane.call("POST", path, pod_body("q"))).status == 201


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "s", "secret": {"secretName": "x"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"name": "s", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_mirror_pod_refers_to_nothing_secret(spec: JSON, why: str) -> None:
    async with running_plane() as plane:
        answer = await create_pod(plane, MIRROR, nodeName="n", **spec)
        assert (answer.status, answer.body["message"]) == (403, f'pods "p" is forbidden: {why}')


def container(**fields: object) -> JSON:
    return {"containers": [{"name": "c", "image": "x", **fields}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"volumes": [{"name": "s", "secret": {"secretName": "no"}}]},
            (
                'volume with secret.secretName="no" is not allowed because service account bot does not reference that '
                "secret"
            ),
        ),
        (
            container(env=[{"name": "V", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}]),
            (
                'container c with envVar V referencing secret.secretName="no" is not allowed because service account bot '
                "does not reference that secret"
            ),
        ),
        (
            container(envFrom=[{"secretRef": {"name": "no"}}]),
            (
                'container c with envFrom referencing secret.secretName="no" is not allowed because service account bot '
                "does not reference that secret"
            ),
        ),
        (
            {"imagePullSecrets": [{"name": "no"}]},
            (
                'imagePullSecrets[0].name="no" is not allowed because service account bot does not reference that '
                "imagePullSecret"
            ),
        ),
    ],
)
async def test_account_may_limit_the_secrets_of_its_pods(spec: JSON, why: str) -> None:
    annotations = {"kubernetes.io/enforce-mountable-secrets": "true"}
    async with running_plane() as plane:
        await create_account(plane, "bot", annotations=annotations, secrets=[{"name": "ok"}])
        answer = await create_pod(plane, serviceAccountName="bot", **spec)
        assert (answer.status, answer.body["message"]) == (403, f'pods "p" is forbidden: {why}')
        mounted: JSON = {"volumes": [{"name": "s", "secret": {"secretName": "ok"}}]}
        assert (await create_pod(plane, serviceAccountName="bot", **mounted)).status == 201

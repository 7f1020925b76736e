"""Random roles, bindings and questions: the real server and ours answer every access review alike.

`GANGLINE_ACCESS_REVIEWS` is the number of questions, `GANGLINE_ACCESS_SEED` where the random numbers begin.
"""

import asyncio
import os
import random
import ssl
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.api.meta import JSON
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.property.rbac import (
    GROUPS,
    NAMES,
    NAMESPACES,
    OBJECT_NAMES,
    PATHS,
    RESOURCES,
    URLS,
    USER_GROUPS,
    USER_NAMES,
    VERBS,
)
from support.servers.real import RealServer

QUESTIONS = int(os.environ.get("GANGLINE_ACCESS_REVIEWS", "400"))
SEED = int(os.environ.get("GANGLINE_ACCESS_SEED", "16"))
RBAC, REVIEWS = "/apis/rbac.authorization.k8s.io/v1", "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUP = "rbac.authorization.k8s.io"
PARALLEL = 8


class RandomAccess:
    """Random objects and questions, with names that no other test has."""

    def __init__(self, seed: int) -> None:
        self._random, self._suffix = random.Random(seed), uuid.uuid4().hex[:8]
        self.namespaces = [self._own(name) for name in NAMESPACES]

    def objects(self) -> list[tuple[str, JSON]]:
        """Paths to create objects at, and the objects."""
        made: list[tuple[str, JSON]] = [("/api/v1/namespaces", {"metadata": {"name": n}}) for n in self.namespaces]
        for name in NAMES:
            made.append((f"{RBAC}/clusterroles", self._role(name, cluster=True)))
            made.append((f"{RBAC}/clusterrolebindings", self._binding(name, "ClusterRole")))
            for namespace in self.namespaces:
                made.append((f"{RBAC}/namespaces/{namespace}/roles", self._role(name, cluster=False)))
                kind = self._random.choice(("Role", "ClusterRole"))
                made.append((f"{RBAC}/namespaces/{namespace}/rolebindings", self._binding(name, kind)))
        return made

    def question(self) -> JSON:
        """The spec of a SubjectAccessReview."""
        names = [self._own(name) for name in USER_NAMES] + [f"system:serviceaccount:{n}:bot" for n in self.namespaces]
        groups = [self._own(name) for name in self._some(USER_GROUPS, 0)]
        spec: JSON = {"user": self._random.choice(names), "groups": groups}
        verb = self._random.choice(("get", "list", "create", "delete"))
        if self._random.random() < 0.15:
            return {**spec, "nonResourceAttributes": {"verb": verb, "path": self._random.choice(PATHS)}}
        attributes = {
            "verb": verb,
            "group": self._random.choice(("", "apps", "batch")),
            "resource": self._random.choice(("pods", "deployments")),
            "subresource": self._random.choice(("", "", "log", "scale")),
            "namespace": self._random.choice(("", *self.namespaces)),
            "name": self._random.choice(("", *OBJECT_NAMES, "c")),
        }
        return {**spec, "resourceAttributes": attributes}

    def _own(self, name: str) -> str:
        return f"{name}-{self._suffix}"

    def _some(self, values: tuple[str, ...], least: int = 1) -> list[str]:
        return self._random.sample(values, self._random.randint(least, min(2, len(values))))

    def _role(self, name: str, *, cluster: bool) -> JSON:
        rules: list[JSON] = []
        for _ in range(self._random.randint(0, 2)):
            rule: dict[str, Any] = {"verbs": self._some(VERBS), "apiGroups": self._some(GROUPS)}
            rule["resources"] = self._some(RESOURCES)
            if self._random.random() < 0.3:
                rule["resourceNames"] = self._some(OBJECT_NAMES)
            rules.append(rule)
        if cluster and self._random.random() < 0.5:
            rules.append({"verbs": self._some(VERBS), "nonResourceURLs": self._some(URLS)})
        return {"metadata": {"name": self._own(name)}, "rules": rules}

    def _binding(self, name: str, kind: str) -> JSON:
        choices = [{"kind": "User", "apiGroup": GROUP, "name": self._own(user)} for user in USER_NAMES]
        choices += [{"kind": "Group", "apiGroup": GROUP, "name": self._own(group)} for group in USER_GROUPS]
        choices += [{"kind": "ServiceAccount", "namespace": n, "name": "bot"} for n in self.namespaces]
        role = {"apiGroup": GROUP, "kind": kind, "name": self._own(self._random.choice(NAMES))}
        subjects = self._random.sample(choices, self._random.randint(0, 2))
        return {"metadata": {"name": self._own(name)}, "roleRef": role, "subjects": subjects}


class Reviewing:
    """One server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session, self._slots = session, asyncio.Semaphore(PARALLEL)

    async def create(self, path: str, body: JSON) -> None:
        async with self._session.post(path, json=body) as response:
            assert response.status == 201, await response.text()

    async def delete(self, path: str) -> None:
        async with self._session.delete(path) as response:
            assert response.status in (200, 202), await response.text()

    async def review(self, spec: JSON) -> JSON:
        async with self._slots, self._session.post(REVIEWS, json={"spec": spec}) as response:
            assert response.status == 201, await response.text()
            status: JSON = (await response.json())["status"]
            return status


@pytest.mark.timeout(600)
async def test_random_access_reviews_have_the_same_answer(real_server: RealServer, tmp_path: Path) -> None:
    real_server.revive()
    case, token = RandomAccess(SEED), {"Authorization": f"Bearer {real_server.token}"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=real_server.ca))
    settings = PlaneSettings(token=real_server.token)
    async with (
        Store() as store,
        control_plane(store, settings, SystemClock()) as plane,
        aiohttp.ClientSession(plane.url, headers=token) as our_session,
        aiohttp.ClientSession(real_server.url, headers=token, connector=connector) as real_session,
    ):
        ours, real = Reviewing(our_session), Reviewing(real_session)
        objects = case.objects()
        for path, body in objects:
            await ours.create(path, body)
            await real.create(path, body)
        try:
            questions = [case.question() for _ in range(QUESTIONS)]
            wanted = await asyncio.gather(*map(ours.review, questions))
            answers = await asyncio.gather(*(_settled(real, *pair) for pair in zip(questions, wanted, strict=True)))
        finally:
            for path, body in objects:
                if path in (f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings", "/api/v1/namespaces"):
                    await real.delete(f"{path}/{body['metadata']['name']}")
    assert 0.1 < sum(answer["allowed"] for answer in answers) / QUESTIONS < 0.9, "questions that say nothing"
    different = [
        f"{question}: {ours} {real}"
        for question, ours, real in zip(questions, wanted, answers, strict=True)
        if _gist(ours) != _gist(real)
    ]
    assert not different, "\n".join(different)


async def _settled(server: Reviewing, question: JSON, wanted: JSON) -> JSON:
    """The answer, when it is the wanted one or when the server has had time to notice all roles."""
    answer = await server.review(question)
    for _ in range(100):
        if _gist(answer) == _gist(wanted):
            break
        await asyncio.sleep(0.05)
        answer = await server.review(question)
    return answer


def _gist(status: JSON) -> tuple[bool, str]:
    """The decision. Of several bindings that allow it, and of several missing roles, a real server names any first."""
    reason: str = status.get("reason", "")
    return status["allowed"], "" if status["allowed"] else "".join(sorted(reason))

"""The two authorization modes of a plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gangline.apiserver.store.store import Store
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo
from gangline.base.clock import SystemClock
from gangline.local.plane import AuthorizationMode, PlaneSettings, control_plane

NOBODY = {"Authorization": "Bearer nobody"}
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
EVERYTHING = {"metadata": {"name": "all"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}


@asynccontextmanager
async def session(mode: AuthorizationMode) -> AsyncIterator[aiohttp.ClientSession]:
    users = {"nobody": UserInfo("nobody", (AUTHENTICATED_GROUP,))}
    settings = PlaneSettings(users=users, authorization_mode=mode)
    async with (
        Store() as store,
        control_plane(store, settings, SystemClock()) as plane,
        aiohttp.ClientSession(plane.url) as session,
    ):
        yield session


@pytest.mark.parametrize(
    ("mode", "secrets", "health", "role"),
    [(AuthorizationMode.RBAC, 403, 200, 403), (AuthorizationMode.ALWAYS_ALLOW, 200, 401, 201)],
)
async def test_a_user_without_roles_and_one_without_login(
    mode: AuthorizationMode, secrets: int, health: int, role: int
) -> None:
    async with session(mode) as client:
        async with client.get("/api/v1/secrets", headers=NOBODY) as response:
            assert response.status == secrets
        async with client.get("/healthz") as response:
            assert response.status == health
        async with client.post(ROLES, headers=NOBODY, json=EVERYTHING) as response:
            assert response.status == role

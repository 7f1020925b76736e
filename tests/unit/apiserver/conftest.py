"""What the tests of the API server share."""

from collections.abc import AsyncIterator

import pytest

from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.auth.default_roles import ensure_default_roles
from gangline.apiserver.auth.rbac import RbacAuthorizer
from gangline.apiserver.auth.role_index import RoleIndex
from gangline.apiserver.store.store import Store


@pytest.fixture
async def role_store() -> AsyncIterator[Store]:
    """A store with the default roles and bindings."""
    async with Store() as store:
        await ensure_default_roles(store, "2026-01-01T00:00:00Z")
        yield store


@pytest.fixture
def authorizer(role_store: Store) -> Authorizer:
    """RBAC with the default roles."""
    return RbacAuthorizer(RoleIndex(role_store))

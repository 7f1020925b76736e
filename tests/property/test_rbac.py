"""RBAC decides as a naive model that looks at every binding and every rule, also while roles come and go."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.rbac import RbacAuthorizer
from gangline.apiserver.auth.role_index import RBAC_PREFIX, RoleIndex
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import UserInfo
from support.property.rbac import ATTRIBUTES, OBJECTS, USERS, RbacModel

CHANGES = st.lists(st.one_of(OBJECTS, st.just(None)), min_size=5, max_size=20)
"""New and changed objects, and None for a deletion."""
REQUESTS = st.lists(st.tuples(USERS, ATTRIBUTES), min_size=10, max_size=20)


@given(CHANGES, REQUESTS, st.data())
async def test_decisions_are_those_of_the_model(
    changes: list[tuple[str, JSON] | None], requests: list[tuple[UserInfo, Mapping[str, Any]]], data: st.DataObject
) -> None:
    async with Store() as store:
        authorizer, objects = RbacAuthorizer(RoleIndex(store)), dict[str, JSON]()
        for change in changes:
            if change is not None:
                path, body = change
                await _write(store, path, dict(body))
                objects[path] = body
            elif objects:
                path = data.draw(st.sampled_from(sorted(objects)))
                await _write(store, path, None)
                del objects[path]
            model = RbacModel(objects)
            for user, attributes in requests:
                decision = authorizer.decide(AccessAttributes(user, **attributes))
                assert decision.allowed == model.allows(user, attributes)
                if decision.allowed and "system:masters" not in user.groups:
                    assert decision.reason.startswith("RBAC: allowed by ")


async def _write(store: Store, path: str, body: JSON | None) -> None:
    record = store.get(f"{RBAC_PREFIX}{path}")
    await store.commit(StoreWrite(f"{RBAC_PREFIX}{path}", body, 0 if record is None else record.revision))

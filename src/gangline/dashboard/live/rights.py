"""What a viewer may do: asked of the server with the viewer's own credentials, remembered for a short time."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from gangline.api.denied_access import DeniedAccess, grant_commands
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_all
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import ApiError, Forbidden, Unauthorized
from gangline.kube.pod_metrics import POD_METRICS
from gangline.summary.objects import NAMESPACES, json_resource

REMEMBERED = timedelta(seconds=30)
"""How long an answer is used: a new role is seen within that time."""
MAX_NAMESPACES = 200
"""The most namespaces that are looked at one by one, for a viewer who may not read all of them at once."""

_REVIEWS = "authorization.k8s.io"
ACCESS_REVIEWS = json_resource(_REVIEWS, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
SUBJECT_REVIEWS = json_resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
_SERVICE_ACCOUNT = "system:serviceaccount:"

T = TypeVar("T")


class Refusal(ViewStruct, frozen=True):
    """What the viewer may not read, in one sentence."""

    resource: str
    # Empty: in all namespaces.
    namespace: str
    message: str


class AccessRefused(GanglineError):
    """The viewer may not read what a page is about."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Access(NamedTuple):
    """A verb on a resource, in a namespace or everywhere."""

    verb: str
    resource: Resource[Any]
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class ReadScope(NamedTuple):
    """Where a resource may be read: everywhere, or in some namespaces; and where it was refused."""

    everywhere: bool
    namespaces: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def where(self) -> tuple[bool, tuple[str, ...]]:
        """The scope without what was refused."""
        return self.everywhere, self.namespaces

    @property
    def is_empty(self) -> bool:
        return not self.everywhere and not self.namespaces


class ReadScopes:
    """Where a viewer may read the resources of one view, as it was when the view began."""

    def __init__(self, rights: "ViewerRights") -> None:
        self._rights = rights
        self._scopes: dict[tuple[Resource[Any], str], ReadScope] = {}

    async def read(self, resource: Resource[Any], namespace: str = "") -> ReadScope:
        """The scope of a resource in a namespace, or everywhere; asked for once."""
        namespace = namespace if resource.namespaced else ""
        if (resource, namespace) not in self._scopes:
            self._scopes[resource, namespace] = await self._rights.read_scope(resource, namespace)
        return self._scopes[resource, namespace]

    async def read_all(self, resources: Iterable[Resource[Any]], namespace: str = "") -> dict[str, ReadScope]:
        """The scopes of several resources by their names, asked for at the same time."""
        scopes: dict[str, ReadScope] = {}

        async def ask(resource: Resource[Any]) -> None:
            scopes[resource.name] = await self.read(resource, namespace)

        await run_all(ask(resource) for resource in resources)
        return scopes

    async def have_changed(self) -> bool:
        """Whether the viewer may read more or less now."""
        for question, before in list(self._scopes.items()):
            if (await self._rights.read_scope(*question)).where != before.where:
                return True
        return False


class ViewerRights:
    """The answers of the server about one viewer."""

    def __init__(self, client: Client, clock: Clock, home_namespaces: Iterable[str] = ()) -> None:
        self._client, self._clock = client, clock
        # Looked at if the viewer may not list namespaces: those of the kubeconfig, those that a page asked for.
        self._known_namespaces = dict.fromkeys(name for name in home_namespaces if name)
        self._answers: dict[object, tuple[float, Any]] = {}

    async def user(self) -> str:
        """The viewer's name; empty if the server does not tell. Raises `Unauthorized`."""
        return await self._remember("user", self._ask_user)

    async def namespaces(self) -> tuple[str, ...] | None:
        """All namespaces, sorted; None if the viewer may not list them."""
        return await self._remember("namespaces", self._list_namespaces)

    async def may(self, access: Access) -> bool:
        """Whether the server would allow it; also if it does not say: the request that follows is then refused."""
        return await self._answer(access) is not False

    async def is_granted(self, access: Access) -> bool:
        """Whether the server says that it is allowed. For what no request follows, such as reading the history."""
        return await self._answer(access) is True

    async def _answer(self, access: Access) -> bool | None:
        return await self._remember(access, lambda: self._ask_access(access))

    async def read_scope(self, resource: Resource[Any], namespace: str = "") -> ReadScope:
        """Where the viewer may list and watch a resource: in the one namespace, or everywhere if that is empty.

        Nowhere, and without a refusal, if the server does not have the kind.
        """
        if namespace:
            self._known_namespaces[namespace] = None
            if len(self._known_namespaces) > MAX_NAMESPACES:
                del self._known_namespaces[next(iter(self._known_namespaces))]
        if not await self._remember(resource.name, lambda: self._ask_served(resource)):
            return ReadScope(everywhere=False)
        if await self.may(Access("list", resource, namespace)):
            return ReadScope(everywhere=not namespace, namespaces=(namespace,) if namespace else ())
        if namespace or not resource.namespaced:
            return ReadScope(everywhere=False, refusals=(await self.refusal(Access("list", resource, namespace)),))
        return await self._namespaced_scope(resource)

    async def _namespaced_scope(self, resource: Resource[Any]) -> ReadScope:
        names = (await self.namespaces() or await self._home_namespaces())[:MAX_NAMESPACES]
        allowed: dict[str, bool] = {}

        async def look(name: str) -> None:
            allowed[name] = await self.may(Access("list", resource, name))

        await run_all(look(name) for name in names)
        readable = tuple(name for name in names if allowed[name])
        refusal = await self.refusal(Access("list", resource))
        if readable:
            message = f"{refusal.message.partition(';')[0]}; shown are {', '.join(readable)}"
            refusal = Refusal(resource=resource.plural, namespace="", message=message)
        return ReadScope(everywhere=False, namespaces=readable, refusals=(refusal,))

    async def refusal(self, access: Access) -> Refusal:
        """What to show for an access that is not allowed: who lacks what, and what an administrator types."""
        resource = "/".join(filter(None, (access.resource.plural, access.subresource)))
        denied = DeniedAccess(await self.user(), access.verb, resource, access.resource.group, access.namespace)
        where = f"in namespace {access.namespace}" if access.namespace else "in all namespaces"
        where = where if access.resource.namespaced else "in the cluster"
        grants = " && ".join(grant_commands(denied)) if denied.user else ""
        remedy = f"; an administrator allows it: {grants}" if grants else ""
        # Two groups have pods.
        what = access.resource.name if access.resource.name == POD_METRICS.name else resource
        message = f"{denied.user or 'you'} may not {access.verb} {what} {where}{remedy}"
        return Refusal(resource=resource, namespace=access.namespace, message=message)

    async def _home_namespaces(self) -> tuple[str, ...]:
        user = await self.user()
        own = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0] if user.startswith(_SERVICE_ACCOUNT) else ""
        return tuple(dict.fromkeys(name for name in (own, *self._known_namespaces) if name))

    async def _ask_user(self) -> str:
        try:
            review: JSON = await self._client.create(SUBJECT_REVIEWS, {})
        except Unauthorized:
            raise
        except ApiError:
            return ""  # before Kubernetes 1.28
        return str(((review.get("status") or {}).get("userInfo") or {}).get("username") or "")

    async def _list_namespaces(self) -> tuple[str, ...] | None:
        try:
            page = await self._client.list(NAMESPACES)
        except Forbidden:
            return None
        return tuple(sorted(body["metadata"]["name"] for body in page.items))

    async def _ask_served(self, resource: Resource[Any]) -> bool:
        """Whether the server has the kind: not every cluster has all kinds of jobs, or our gangs."""
        try:
            return await is_served(self._client, resource)
        except Unauthorized:
            raise
        except ApiError:
            return True  # The server does not say: the request itself will.

    async def _ask_access(self, access: Access) -> bool | None:
        attributes = {
            "verb": access.verb,
            "group": access.resource.group,
            "resource": access.resource.plural,
            "namespace": access.namespace,
            "name": access.name,
            "subresource": access.subresource,
        }
        body = {"spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}}}
        try:
            review: JSON = await self._client.create(ACCESS_REVIEWS, body)
        except Forbidden:
            return None  # The server does not say.
        return bool((review.get("status") or {}).get("allowed"))

    async def _remember(self, question: object, ask: Callable[[], Awaitable[T]]) -> T:
        now = self._clock.monotonic()
        if question in self._answers:
            at, answer = self._answers[question]
            if now - at < REMEMBERED.total_seconds():
                remembered: T = answer
                return remembered
        if len(self._answers) > 10 * MAX_NAMESPACES:
            self._answers.clear()
        value = await ask()
        self._answers[question] = (now, value)
        return value

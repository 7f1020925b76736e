"""The plugins that call webhooks: mutating ones one after the other, validating ones all at once."""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.admission.webhooks.calls import WebhookCaller, WebhookCallError
from gangline.apiserver.admission.webhooks.configurations import AdmissionConfigurations, ConfiguredWebhook
from gangline.apiserver.admission.webhooks.matching import (
    MatchedRequest,
    converted,
    matched_kind,
    matches_selectors,
)
from gangline.apiserver.admission.webhooks.reviews import (
    ReviewAnswer,
    admission_request,
    refusal,
    request_namespace,
)
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.errors import StatusError
from gangline.apiserver.patch.json_patch import deep_copy, json_patch
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import Catalog, ServedKind
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import default_and_prune
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import SERVER_USER
from gangline.base.tasks import run_all
from gangline.schema.go_text import quoted_text

log = logging.getLogger(__name__)

MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"


class AdmissionSources(NamedTuple):
    """What webhooks and policies are decided by."""

    store: Store
    catalog: Catalog
    authorizer: Authorizer
    configurations: AdmissionConfigurations


def matched_request(request: AdmissionRequest, store: Store) -> MatchedRequest:
    """What rules and selectors see of a request."""
    namespace, labels = request_namespace(request), None
    is_namespace = request.served_kind.resource.group_resource == ("", "namespaces")
    if is_namespace and not request.context.subresource and request.operation is not WriteOperation.DELETE:
        labels = request.obj["metadata"].get("labels") or {}
    elif namespace:
        stored = stored_namespace(store, namespace)
        labels = ((stored or {}).get("metadata") or {}).get("labels") or {}
    objects = [] if request.operation in (WriteOperation.DELETE, WriteOperation.CONNECT) else [request.obj]
    if request.old is not None:
        objects.append(request.old)
    return MatchedRequest(
        request.operation.value,
        request.served_kind,
        request.context.subresource,
        namespace,
        tuple((obj.get("metadata") or {}).get("labels") or {} for obj in objects),
        labels,
    )


def is_own_step(request: AdmissionRequest) -> bool:
    """Whether the server writes on its own: what every server has, or a step of a request that was admitted."""
    context = request.context
    if context.subresource == "binding" and request.operation is WriteOperation.UPDATE:
        return True
    return context.user is SERVER_USER and context.field_manager == "kube-apiserver"


def stored_namespace(store: Store, name: str) -> JSON | None:
    record = store.get(object_path("", "namespaces", "", name))
    return None if record is None else decode_record(record)


def object_before_creation(request: AdmissionRequest) -> JSON:
    """The object without what the server sets after mutation: uid and times, and a name that it generates."""
    if request.operation is not WriteOperation.CREATE or request.context.subresource:
        return request.obj
    later = {"uid", "creationTimestamp"} | ({"name"} if request.name_prefix else set())
    metadata = {name: value for name, value in request.obj["metadata"].items() if name not in later}
    return {**request.obj, "metadata": metadata}


class _WebhookPlugin(AdmissionPlugin):
    """What both plugins share: which webhooks a request is for, and the call of one."""

    operations = frozenset(WriteOperation)
    subresources = None

    def __init__(self, sources: AdmissionSources, caller: WebhookCaller) -> None:
        self._sources, self._caller = sources, caller

    def _invoked_kind(self, webhook: JSON, request: AdmissionRequest, matched: MatchedRequest) -> ServedKind | None:
        """The version in which a webhook wants the object; None if it is not called. Raises `StatusError`."""
        if not matches_selectors(webhook, matched):
            return None
        kind = matched_kind(webhook, webhook.get("rules", ()), matched, self._sources.catalog)
        if kind is None or not webhook.get("matchConditions"):
            return kind
        return kind if self._meets_conditions(webhook, request, kind) else None

    def _meets_conditions(self, webhook: JSON, request: AdmissionRequest, kind: ServedKind) -> bool:
        # Loaded with the first condition: CEL is large.
        from gangline.apiserver.admission.webhooks.conditions import admission_variables, evaluate_conditions
        from gangline.apiserver.kinds.declared.expressions import condition_program

        conditions = webhook["matchConditions"]
        programs = [condition_program(condition["expression"].strip()) for condition in conditions]
        review = self._review(request, kind)
        variables = admission_variables(review, request.context.user, self._sources.authorizer)
        result = evaluate_conditions(conditions, programs, variables)
        if not result.error or not result.matches:
            return result.matches
        if webhook["failurePolicy"] == "Ignore":
            return False
        raise apierrors.forbidden(request.served_kind.resource, request.sent_name, result.error)

    def _review(self, request: AdmissionRequest, kind: ServedKind) -> JSON:
        has_object = request.operation is not WriteOperation.DELETE
        obj = converted(self._shown_object(request), request.served_kind, kind) if has_object else None
        return admission_request(request, kind, obj, converted(request.old, request.served_kind, kind))

    def _shown_object(self, request: AdmissionRequest) -> JSON:
        return request.obj

    async def _call(
        self, webhook: JSON, request: AdmissionRequest, kind: ServedKind, annotation: str, *, mutating: bool
    ) -> ReviewAnswer | None:
        """The answer; None if the webhook failed and may be ignored. Raises `StatusError`."""
        if request.context.dry_run and webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise apierrors.bad_request(f"admission webhook {quoted_text(webhook['name'])} does not support dry run")
        try:
            answer = await self._caller.call(webhook, self._review(request, kind), mutating=mutating)
        except WebhookCallError as error:
            if webhook["failurePolicy"] != "Ignore":
                raise apierrors.internal_error(str(error)) from error
            log.warning("webhook failed and is ignored", extra={"webhook": webhook["name"], "error": str(error)})
            request.add_audit_annotation(f"failed-open.{annotation}", webhook["name"])
            return None
        for key, value in answer.audit_annotations.items():
            request.add_audit_annotation(f"{webhook['name']}/{key}", value)
        request.warnings.extend(answer.warnings)
        if not answer.allowed:
            raise refusal(webhook["name"], answer.status)
        return answer


class ValidatingAdmissionWebhook(_WebhookPlugin):
    name = "ValidatingAdmissionWebhook"

    async def validate(self, request: AdmissionRequest) -> None:
        webhooks = self._sources.configurations.webhooks(VALIDATING)
        if not webhooks:
            return
        matched = matched_request(request, self._sources.store)
        if matched.is_exempt or is_own_step(request):
            return
        invoked = [(item, kind) for item in webhooks if (kind := self._invoked_kind(item.webhook, request, matched))]
        refusals: dict[int, StatusError] = {}

        async def ask(index: int, webhook: JSON, kind: ServedKind) -> None:
            annotation = f"validating.webhook.admission.k8s.io/round_0_index_{index}"
            try:
                await self._call(webhook, request, kind, annotation, mutating=False)
            except StatusError as error:
                refusals[index] = error

        await run_all(ask(index, item.webhook, kind) for index, (item, kind) in enumerate(invoked))
        if refusals:
            raise refusals[min(refusals)]


class MutatingAdmissionWebhook(_WebhookPlugin):
    name = "MutatingAdmissionWebhook"

    def _shown_object(self, request: AdmissionRequest) -> JSON:
        return object_before_creation(request)

    async def mutate(self, request: AdmissionRequest) -> Callable[[], Awaitable[None]] | None:
        webhooks = self._sources.configurations.webhooks(MUTATING)
        if not webhooks or is_own_step(request) or matched_request(request, self._sources.store).is_exempt:
            return None
        rounds = _MutationRounds()
        for index, item in enumerate(webhooks):
            await self._invoke(rounds, 0, index, item, request)
        if not rounds.any_changed:
            return None
        output = deep_copy(request.obj)

        async def again() -> None:
            if request.obj != output:
                rounds.require_all()
            for index, item in enumerate(webhooks):
                if rounds.is_due(index):
                    await self._invoke(rounds, 1, index, item, request)

        return again

    async def _invoke(
        self, rounds: "_MutationRounds", number: int, index: int, item: ConfiguredWebhook, request: AdmissionRequest
    ) -> None:
        # Labels may have changed since the last webhook.
        webhook, matched = item.webhook, matched_request(request, self._sources.store)
        kind = self._invoked_kind(webhook, request, matched)
        if kind is None:
            return
        annotation = f"mutation.webhook.admission.k8s.io/round_{number}_index_{index}"
        answer = await self._call(webhook, request, kind, annotation, mutating=True)
        changed = answer is not None and self._apply_patch(request, kind, webhook["name"], answer.patch)
        report = {"configuration": item.configuration, "webhook": webhook["name"], "mutated": changed}
        request.add_audit_annotation(annotation, msgspec.json.encode(report).decode())
        rounds.record(index, changed=changed, reinvocable=webhook.get("reinvocationPolicy") == "IfNeeded")

    def _apply_patch(self, request: AdmissionRequest, kind: ServedKind, webhook: str, patch: list[JSON] | None) -> bool:
        """Change the object as the webhook asks for; whether that changed anything. Raises `StatusError`."""
        if not patch:
            return False
        if request.operation in (WriteOperation.DELETE, WriteOperation.CONNECT):
            name = quoted_text(webhook)
            why = f"admission webhook {name} attempted to modify the object, which is not supported for this operation"
            raise apierrors.internal_error(why)
        shown = converted(self._shown_object(request), request.served_kind, kind)
        assert shown is not None
        try:
            patched = json_patch(shown, patch)
        except StatusError as error:
            raise apierrors.internal_error(error.log_detail or error.message) from error
        new = converted(patched, kind, request.served_kind)
        assert new is not None
        changed: bool = patched != shown
        # What the server has set stays, and a generated name stays unless the webhook chose one.
        kept = {key: value for key, value in request.obj["metadata"].items() if key not in shown["metadata"]}
        new["metadata"] = {**kept, **(new.get("metadata") or {})}
        new["kind"], new["apiVersion"] = request.served_kind.resource.kind, request.served_kind.resource.api_version
        if not request.context.subresource:
            default_and_prune(request.context, request.served_kind, new)
        request.obj.clear()
        request.obj.update(new)
        return changed


class _MutationRounds:
    """Which webhooks have to be called again, because others changed the object after them."""

    def __init__(self) -> None:
        self.any_changed = False
        self._reinvocable: set[int] = set()
        self._due: set[int] = set()

    def record(self, index: int, *, changed: bool, reinvocable: bool) -> None:
        """Note a call. A change makes those due that were called before and want to be called again."""
        if changed:
            self.any_changed = True
            self._due |= self._reinvocable
        if reinvocable:
            self._reinvocable.add(index)

    def require_all(self) -> None:
        """Plugins have changed the object: all that want to be called again are due."""
        self._due |= self._reinvocable

    def is_due(self, index: int) -> bool:
        return index in self._due

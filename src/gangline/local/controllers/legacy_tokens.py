"""Fills Secrets of type `kubernetes.io/service-account-token`, and removes them with their service account."""

import base64
from collections.abc import Callable
from pathlib import Path

from gangline.api.meta import JSON, Key
from gangline.apiserver.auth.token_requests import TokenIssuer
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record, storage_path
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.apiserver.store.watches import StoreWatch
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, storage_kind

TOKEN_CONTROLLER_CALL = WriteContext(field_manager="kube-controller-manager")
API_SERVER_CALL = WriteContext(field_manager="kube-apiserver")
SECRETS_PREFIX = collection_prefix("", "secrets")
TOKEN_SECRET_TYPE = b'"kubernetes.io/service-account-token"'
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
LAST_USED_LABEL = "kubernetes.io/legacy-token-last-used"


class LegacyTokenController:
    """Keeps the Secrets that hold tokens of service accounts."""

    def __init__(self, registry: Registry, issuer: TokenIssuer, ca: Path | None, clock: Clock) -> None:
        self._registry, self._issuer, self._ca, self._clock = registry, issuer, ca, clock
        # Keys are `namespace/name` of a Secret.
        self._secrets = KeyWorker("token of a secret", self._reconcile, clock)
        self._uses = KeyWorker("last use of a secret's token", self._label, clock)
        # Deleted Secrets whose service account may still list them.
        self._deleted: dict[str, JSON] = {}

    def record_use(self, secret: Key) -> None:
        """Remember that the token of a Secret was used: a label says on which day."""
        self._uses.add(str(secret))

    async def run(self) -> None:
        """Reconcile until cancelled, or until the store ends its watches."""
        store = self._registry.store
        with (
            store.watch(SECRETS_PREFIX, after=store.revision) as secrets,
            store.watch(collection_prefix("", "serviceaccounts"), after=store.revision) as accounts,
        ):
            self._add_secrets(SECRETS_PREFIX)
            await run_until_first(
                self._secrets.follow(secrets, self._handle_secret), self._follow_accounts(accounts), self._uses.run()
            )

    async def _follow_accounts(self, changes: StoreWatch) -> None:
        async for events in changes:
            for event in events:
                if event.deleted:
                    self._add_secrets(collection_prefix("", "secrets", split_path(event.record.path).namespace))

    def _add_secrets(self, prefix: str) -> None:
        for record in self._registry.store.range(prefix).records:
            self._handle_secret(StoreEvent(record, None))

    def _handle_secret(self, event: StoreEvent) -> None:
        if TOKEN_SECRET_TYPE not in event.record.data:
            return
        path = split_path(event.record.path)
        key = str(Key(path.namespace, path.name))
        if event.deleted:
            self._deleted[key] = decode_record(event.record)
        self._secrets.add(key)

    async def _reconcile(self, key: str) -> None:
        if (deleted := self._deleted.get(key)) is not None:
            await self._remove_reference(deleted)
            if self._deleted[key] is deleted:
                del self._deleted[key]
        if (secret := self._secret(key)) is not None:
            await self._fill(secret)

    def _secret(self, key: str) -> JSON | None:
        record = self._registry.store.get(f"{SECRETS_PREFIX}{key}")
        return decode_record(record) if record is not None else None

    async def _fill(self, secret: JSON) -> None:
        """Add what is missing in a Secret; delete it if its service account does not exist."""
        metadata = secret["metadata"]
        if secret.get("type") != "kubernetes.io/service-account-token" or "deletionTimestamp" in metadata:
            return
        account = self._account(secret)
        if account is None:
            await self._delete(metadata)
            return
        missing = self._missing_data(secret, account)
        if not missing:
            return

        def fill(stored: JSON) -> None:
            stored["data"] = {**(stored.get("data") or {}), **missing}
            names = {ACCOUNT_NAME: account["name"], ACCOUNT_UID: account["uid"]}
            stored["metadata"]["annotations"] = {**(stored["metadata"].get("annotations") or {}), **names}

        await self._edit(TOKEN_CONTROLLER_CALL, "secrets", metadata, fill)

    def _account(self, secret: JSON) -> JSON | None:
        """The metadata of the service account that a Secret names; None if it does not exist."""
        annotations = secret["metadata"].get("annotations") or {}
        kind = storage_kind(self._registry, "", "serviceaccounts")
        key = Key(secret["metadata"]["namespace"], annotations.get(ACCOUNT_NAME) or "")
        record = self._registry.store.get(storage_path(kind, key)) if "/" not in key.name else None
        account: JSON | None = decode_record(record)["metadata"] if record is not None else None
        if account is None or annotations.get(ACCOUNT_UID) not in (None, "", account["uid"]):
            return None
        return account

    def _missing_data(self, secret: JSON, account: JSON) -> dict[str, str]:
        data, metadata = secret.get("data") or {}, secret["metadata"]
        missing: dict[str, str] = {}
        ca = _encoded(self._ca.read_text()) if self._ca is not None else ""
        if ca and data.get("ca.crt") != ca:
            missing["ca.crt"] = ca
        if not data.get("namespace"):
            missing["namespace"] = _encoded(metadata["namespace"])
        if not data.get("token"):
            missing["token"] = _encoded(self._issuer.issue_legacy(account, metadata["name"]))
        return missing

    async def _remove_reference(self, secret: JSON) -> None:
        """Remove a deleted Secret from the list of its service account."""
        account, name = self._account(secret), secret["metadata"]["name"]
        if account is None:
            return

        def remove(stored: JSON) -> None:
            remaining = [item for item in stored.get("secrets") or () if item.get("name") != name]
            if len(remaining) < len(stored.get("secrets") or ()):
                stored["secrets"] = remaining

        await self._edit(TOKEN_CONTROLLER_CALL, "serviceaccounts", account, remove)

    async def _label(self, key: str) -> None:
        today, secret = self._clock.now().strftime("%Y-%m-%d"), self._secret(key)
        if secret is None or (secret["metadata"].get("labels") or {}).get(LAST_USED_LABEL) == today:
            return

        def label(stored: JSON) -> None:
            stored["metadata"]["labels"] = {**(stored["metadata"].get("labels") or {}), LAST_USED_LABEL: today}

        await self._edit(API_SERVER_CALL, "secrets", secret["metadata"], label)

    async def _edit(self, call: WriteContext, plural: str, metadata: JSON, edit: Callable[[JSON], None]) -> None:
        kind, key = storage_kind(self._registry, "", plural), Key(metadata["namespace"], metadata["name"])
        with ignore_status(404, 409):
            await edit_object(self._registry, call, kind, key, metadata["uid"], edit)

    async def _delete(self, metadata: JSON) -> None:
        kind = storage_kind(self._registry, "", "secrets")
        with ignore_status(404, 409):
            options = DeletionOptions(uid=metadata["uid"])
            await self._registry.delete(
                TOKEN_CONTROLLER_CALL, kind, Key(metadata["namespace"], metadata["name"]), options
            )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

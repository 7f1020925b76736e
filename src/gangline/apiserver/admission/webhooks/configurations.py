"""The stored configurations of admission, decoded once, in the order in which they are applied."""

from collections.abc import Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch

ADMISSION_GROUP = "admissionregistration.k8s.io"
ADMISSION_PREFIX = f"/{ADMISSION_GROUP}/"


class ConfiguredWebhook(msgspec.Struct, frozen=True):
    """One webhook of a configuration."""

    configuration: str
    webhook: JSON


class AdmissionConfigurations:
    """Webhooks and policies of a store. It follows the store: every answer is of the newest revision.

    Without any configuration a question costs next to nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: StoreWatch | None = None
        self._objects: dict[str, dict[str, JSON]] = {}
        """By plural and name."""
        self._webhooks: dict[str, Sequence[ConfiguredWebhook]] = {}

    @property
    def is_empty(self) -> bool:
        self._follow()
        return not self._objects

    def objects(self, plural: str) -> Sequence[JSON]:
        """The objects of a resource, in order of name."""
        self._follow()
        found = self._objects.get(plural)
        return [found[name] for name in sorted(found)] if found else ()

    def find(self, plural: str, name: str) -> JSON | None:
        self._follow()
        return self._objects.get(plural, {}).get(name)

    def webhooks(self, plural: str) -> Sequence[ConfiguredWebhook]:
        """All webhooks of a kind of configurations: in order of the names of these, and then as they list them."""
        self._follow()
        if plural not in self._objects:
            return ()
        if plural not in self._webhooks:
            self._webhooks[plural] = [
                ConfiguredWebhook(item["metadata"]["name"], webhook)
                for item in self.objects(plural)
                for webhook in item.get("webhooks", ())
            ]
        return self._webhooks[plural]

    def _follow(self) -> None:
        changes = self._watch.pending() if self._watch is not None else None
        if changes is None:
            self._objects.clear()
            snapshot = self._store.range(ADMISSION_PREFIX)
            self._watch = self._store.watch(ADMISSION_PREFIX, after=snapshot.revision)
            for record in snapshot.records:
                self._set(record.path, decode_record(record))
        for event in changes or ():
            self._set(event.record.path, None if event.deleted else decode_record(event.record))

    def _set(self, path: str, obj: JSON | None) -> None:
        parts = split_path(path)
        self._webhooks.clear()
        objects = self._objects.setdefault(parts.plural, {})
        if obj is not None:
            objects[parts.name] = obj
        else:
            objects.pop(parts.name, None)
            if not objects:
                del self._objects[parts.plural]

"""Joins a notifier with its channels, its records and the informers of an operator."""

import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.notify.channels.command import CommandChannel
from gangline.notify.channels.webhook import Webhook, check_files
from gangline.notify.delivery import DeliveryChannel
from gangline.notify.notifier import DEFAULT_OPTIONS, JobInformer, Notifier, NotifierOptions
from gangline.notify.plan.routes import NotificationRoute, NotificationSettings
from gangline.notify.records import ConfigMapRecords, MemoryRecords

log = logging.getLogger(__name__)


def new_notifier(
    settings: NotificationSettings,
    client: Client,
    key: Key | None,
    informers: Iterable[JobInformer],
    clock: Clock,
    options: NotifierOptions = DEFAULT_OPTIONS,
) -> Notifier:
    """A notifier that remembers in the ConfigMap of this key what it has delivered; None: in memory."""

    def channel(route: NotificationRoute) -> AbstractAsyncContextManager[DeliveryChannel]:
        return CommandChannel(route, clock) if route.command else Webhook(route, clock)

    records = ConfigMapRecords(client, key) if key is not None else MemoryRecords()
    notifier = Notifier(settings, client, records, channel, clock, options)
    for informer in informers:
        notifier.follow(informer)
    return notifier


def warn_of_unusable_files(settings: NotificationSettings) -> None:
    """Log each route whose files cannot be used. They may come later, so the routes stay."""
    for route in settings.routes:
        try:
            check_files(route)
        except InputError as error:
            log.warning("nothing can be delivered by this route yet", extra={"route": route.name, "error": str(error)})

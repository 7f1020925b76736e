"""Who hears of what: the settings of notifications, as a file has them.

Where a notification goes comes from these settings alone, never from a job. Secrets are named by file.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document, documents
from gangline.api.codec.errors import FieldPath
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.base.errors import InputError
from gangline.notify.plan.transitions import NotifiedState, Transition

COMMAND_PREFIX = "command:"
SLACK_PREFIX = "slack="
_SLACK_HOST = "hooks.slack.com"
_URL_SCHEMES = ("http", "https")

FIELD = re.compile(r"\{([a-z]+)\}")
"""A field in a body of the user's own."""
FIELD_NAMES = (
    *("id", "state", "time", "kind", "namespace", "name", "uid"),
    *("reason", "message", "restarts", "cause", "why", "subject", "text"),
)

_selector = cache(LabelSelector.parse)

RouteName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]


class MessageFormat(StrEnum):
    """The body of a webhook's request."""

    GENERIC = "generic"
    SLACK = "slack"
    EMAIL = "email"


class NotificationRoute(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One receiver, and the transitions that it gets. An empty filter lets everything pass."""

    name: RouteName
    # Exactly one of these three.
    url: str = ""
    url_file: str = ""
    command: tuple[str, ...] = ()
    format: MessageFormat = MessageFormat.GENERIC
    # The body instead of a format: JSON, in whose strings fields such as {subject} are replaced.
    body: dict[str, Any] = {}
    # For the format `email`.
    sender: str = msgspec.field(name="from", default="")
    to: tuple[str, ...] = ()
    signing_key_file: str = ""
    authorization_file: str = ""
    ca_file: str = ""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10
    # Filters.
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    states: tuple[NotifiedState, ...] = ()
    labels: str = ""

    def admits(self, transition: Transition) -> bool:
        """Whether the receiver gets this transition."""
        return (
            (not self.states or transition.state in self.states)
            and (not self.namespaces or transition.namespace in self.namespaces)
            and (not self.kinds or transition.kind in self.kinds)
            and _selector(self.labels).matches(transition.labels)
        )


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All routes, and what holds for all of them."""

    routes: tuple[NotificationRoute, ...]
    # What is older when it could be delivered is not delivered any more.
    max_age_seconds: Annotated[int, msgspec.Meta(ge=60, le=7 * 86400)] = 86400
    # When a job that should run and does not is reported as waiting.
    waiting_after_seconds: Annotated[int, msgspec.Meta(ge=1)] = 600
    # Transitions that wait for one receiver at most. The oldest are dropped.
    queue_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10_000

    @property
    def max_age(self) -> timedelta:
        return timedelta(seconds=self.max_age_seconds)

    @property
    def waiting_after(self) -> timedelta:
        return timedelta(seconds=self.waiting_after_seconds)

    def receivers(self, transition: Transition) -> tuple[str, ...]:
        """The names of the routes that get a transition."""
        return tuple(route.name for route in self.routes if route.admits(transition))


def parse_settings(text: str, file: str, *, allow_commands: bool = False) -> NotificationSettings:
    """The settings in a YAML or JSON text. Raises `InputError` in one line, with file, line and field.

    Commands run with the rights of this process, so a caller must allow them.
    """
    found = documents(text, file=file)
    if len(found) != 1:
        raise InputError(f"{file}: expected one document with routes, got {len(found)}")
    document = found[0]
    settings = decode_document(document, NotificationSettings)
    _check(document, settings, allow_commands=allow_commands)
    return settings


def settings_from_options(options: tuple[str, ...], files: Mapping[str, str]) -> NotificationSettings:
    """The settings of `--notify` options: a URL, `slack=URL`, `command:COMMAND` or a file, whose text is in `files`.

    Raises `InputError`.
    """
    routes: list[NotificationRoute] = []
    settings = NotificationSettings(routes=())
    for number, option in enumerate(options, 1):
        if option in files:
            settings = parse_settings(files[option], option, allow_commands=True)
            routes += settings.routes
        else:
            routes.append(route_of_option(option, f"notify-{number}"))
    names = [route.name for route in routes]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"--notify: two routes are called {repeated}; rename one of them")
    return msgspec.structs.replace(settings, routes=tuple(routes))


def is_file_option(option: str) -> bool:
    """Whether a `--notify` option names a file."""
    return not option.startswith((COMMAND_PREFIX, SLACK_PREFIX)) and "://" not in option


def route_of_option(option: str, name: str) -> NotificationRoute:
    """The route of a `--notify` option that is no file. Raises `InputError`."""
    if option.startswith(COMMAND_PREFIX):
        command = option.removeprefix(COMMAND_PREFIX).strip()
        if not command:
            raise InputError("--notify: command: has no command; write one, as in --notify 'command:cat >> jobs.log'")
        return NotificationRoute(name=name, command=("/bin/sh", "-c", command))
    url = option.removeprefix(SLACK_PREFIX)
    if problem := url_problem(url):
        raise InputError(f"--notify: {problem}")
    is_slack = option.startswith(SLACK_PREFIX) or urlsplit(url).hostname == _SLACK_HOST
    return NotificationRoute(name=name, url=url, format=MessageFormat.SLACK if is_slack else MessageFormat.GENERIC)


def url_problem(url: str) -> str:
    """What is wrong with the URL of a webhook, without the URL, which may be a secret; empty: nothing."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL; write one, as in https://example.org/hook"
    if parts.scheme not in _URL_SCHEMES or not host:
        return "is not a URL of http or https; write one, as in https://example.org/hook"
    if parts.username is not None or parts.password is not None:
        return "has a password in its URL; write `Basic ...` into a file, and name it as authorizationFile"
    if any(character.isspace() or not character.isprintable() for character in url):
        return "has a space in its URL; write %20"
    return ""


def _check(document: Document, settings: NotificationSettings, *, allow_commands: bool) -> None:
    names: set[str] = set()
    for index, route in enumerate(settings.routes):
        for field, problem in _route_problems(route, allow_commands=allow_commands):
            path: FieldPath = ("routes", index, *((field,) if field else ()))
            raise document.error(problem, path)
        if route.name in names:
            raise document.error(f"two routes are called {route.name}; rename one of them", ("routes", index, "name"))
        names.add(route.name)
    if not settings.routes:
        raise document.error("has no route; write one, or leave the file out", ("routes",))


def _route_problems(route: NotificationRoute, *, allow_commands: bool) -> Iterator[tuple[str, str]]:
    """The fields of a route that cannot be used, and why."""
    receivers = [name for name in ("url", "url_file", "command") if getattr(route, name)]
    if len(receivers) != 1:
        yield "", "has no receiver or several; write one of url, urlFile and command"
    if route.command and not allow_commands:
        yield "command", "is for gangline up and gangline run; an operator in a cluster calls a url or urlFile"
    if route.url and (problem := url_problem(route.url)):
        yield "url", problem
    if route.format is MessageFormat.EMAIL and not (route.sender and route.to):
        yield "format", "email needs from and to"
    if route.format is not MessageFormat.EMAIL and (route.sender or route.to):
        yield "from" if route.sender else "to", "is for format: email"
    if route.body and route.format is not MessageFormat.GENERIC:
        yield "body", f"takes the place of format: {route.format}; leave one of them out"
    if unknown := next(_unknown_fields(route.body), None):
        yield "body", f"has {{{unknown}}}, which is no field; write one of {', '.join(FIELD_NAMES)}"
    for field, path in (
        ("urlFile", route.url_file),
        ("signingKeyFile", route.signing_key_file),
        ("authorizationFile", route.authorization_file),
        ("caFile", route.ca_file),
    ):
        if path and route.command:
            yield field, "is for a url; a command has no use for it"
        if path and not Path(path).is_absolute():
            yield field, "is not an absolute path; write one, as in /etc/gangline/notifications/key"
    try:
        LabelSelector.parse(route.labels)
    except SelectorError as error:
        yield "labels", f"is not a label selector ({error}); write one, as in team=vision,stage!=test"


def _unknown_fields(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (match[1] for match in FIELD.finditer(value) if match[1] not in FIELD_NAMES)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _unknown_fields(child)

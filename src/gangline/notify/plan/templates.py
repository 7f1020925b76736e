"""The text of a notification, and the body of a webhook's request in the format that its receiver expects.

Names, labels and messages of a job are somebody else's text. It is put into JSON strings, never into a template that is
parsed afterwards; Slack's control characters are escaped, and the subject of a mail has one line.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.notify.plan.routes import FIELD, MessageFormat, NotificationRoute
from gangline.notify.plan.transitions import NotifiedState, Transition, time_text

CONTENT_TYPE = "application/json"
_MAX_SUBJECT = 200
_COLOURS = {
    NotifiedState.SUCCEEDED: "#2e7d32",
    NotifiedState.FAILED: "#c62828",
    NotifiedState.RESTARTED: "#ef6c00",
    NotifiedState.BLOCKED: "#ef6c00",
    NotifiedState.WAITING: "#ef6c00",
}
_TROUBLE = (NotifiedState.FAILED, NotifiedState.RESTARTED, NotifiedState.BLOCKED, NotifiedState.WAITING)
_NEUTRAL_COLOUR = "#546e7a"


def request_body(route: NotificationRoute, transition: Transition) -> bytes:
    """The JSON body of a request to the route's URL."""
    return msgspec.json.encode(_body(route, transition))


def _body(route: NotificationRoute, transition: Transition) -> JSON:
    if route.body:
        return {name: _filled(value, template_fields(transition)) for name, value in route.body.items()}
    match route.format:
        case MessageFormat.SLACK:
            return slack_message(transition)
        case MessageFormat.EMAIL:
            return mail(transition, route.sender, route.to)
        case _:
            return generic_message(transition)


def generic_message(transition: Transition) -> JSON:
    """All fields of the transition, and its text. Fields without a value are left out."""
    body = {name: value for name, value in to_json(transition).items() if value not in ("", [], {})}
    return {**body, "time": time_text(transition.time), "text": plain_text(transition)}


def slack_message(transition: Transition) -> JSON:
    """A message for incoming webhooks of Slack and of those that take its messages: Mattermost, Rocket.Chat, Discord."""
    headline = _slack_text(subject(transition))
    attachment = {
        "fallback": headline,
        "color": _COLOURS.get(transition.state, _NEUTRAL_COLOUR),
        "text": _slack_text("\n".join(_details(transition))) or headline,
        "ts": int(transition.time.timestamp()),
    }
    return {"text": headline, "attachments": [attachment]}


def mail(transition: Transition, sender: str, to: tuple[str, ...]) -> JSON:
    """A mail for gateways that take JSON with `from`, `to`, `subject` and `text`."""
    return {"from": sender, "to": list(to), "subject": subject(transition), "text": plain_text(transition)}


def template_fields(transition: Transition) -> Mapping[str, str]:
    """What a body of the user's own may contain in braces."""
    return {
        "id": transition.id,
        "state": transition.state.value,
        "time": time_text(transition.time),
        "kind": transition.kind,
        "namespace": transition.namespace,
        "name": transition.name,
        "uid": transition.uid,
        "reason": transition.reason,
        "message": transition.message,
        "restarts": str(transition.restarts),
        "cause": transition.cause,
        "why": transition.why,
        "subject": subject(transition),
        "text": plain_text(transition),
    }


def subject(transition: Transition) -> str:
    """The notification in one line: `PyTorchJob team-a/bert failed: worker-3 OOMKilled`."""
    text = f"{transition.kind} {transition.namespace}/{transition.name} {_headline(transition)}"
    return _one_line(text, _MAX_SUBJECT)


def plain_text(transition: Transition) -> str:
    """The notification in several lines."""
    return "\n".join((subject(transition), *_details(transition)))


def _headline(transition: Transition) -> str:
    match transition.state:
        case NotifiedState.RESTARTED:
            text = f"restarted (restarts: {transition.restarts})"
        case NotifiedState.WAITING:
            text = "is still waiting to run"
        case NotifiedState.RUNNING:
            text = "is running"
        case NotifiedState.CREATED | NotifiedState.SUSPENDED | NotifiedState.RESUMED | NotifiedState.BLOCKED:
            text = f"is {transition.state}"
        case _:
            text = transition.state.value
    return f"{text}: {transition.cause}" if transition.cause else text


def _details(transition: Transition) -> list[str]:
    """What the subject does not say: only a state that somebody should look at needs more words."""
    if transition.state not in _TROUBLE and transition.why:
        return []
    lines = [_one_line(transition.message)] if transition.message else []
    lines += [f"  {_one_line(line)}" for line in transition.log]
    return [*lines, transition.why] if transition.why else lines


def _one_line(text: str, limit: int | None = None) -> str:
    line = "".join(character if character.isprintable() else " " for character in text).strip()
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _filled(value: Any, fields: Mapping[str, str]) -> Any:
    """A JSON value with fields in its strings. What a field contains is not looked at again."""
    if isinstance(value, str):
        return FIELD.sub(lambda match: fields.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_filled(item, fields) for item in value]
    if isinstance(value, dict):
        return {name: _filled(item, fields) for name, item in value.items()}
    return value

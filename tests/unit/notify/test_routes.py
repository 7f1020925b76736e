"""Settings of notifications: who hears of what, and what is said about mistakes."""

import pytest

from gangline.base.errors import InputError
from gangline.notify.plan.routes import (
    FIELD_NAMES,
    MessageFormat,
    NotificationRoute,
    is_file_option,
    parse_settings,
    route_of_option,
    settings_from_options,
)
from gangline.notify.plan.templates import template_fields
from gangline.notify.plan.transitions import NotifiedState, Transition, transition_of
from support.builders.notified_jobs import NOW, JobHistory, settings_of, webhook_route

KEY = f"created-{int(NOW.timestamp())}"


def transition(namespace: str = "team-a", **labels: str) -> Transition:
    return transition_of(JobHistory("bert", namespace, NOW, **labels).create().job, KEY)


@pytest.mark.parametrize(
    ("filters", "admitted"),
    [
        ({}, True),
        ({"states": (NotifiedState.CREATED, NotifiedState.FAILED)}, True),
        ({"states": (NotifiedState.FAILED,)}, False),
        ({"namespaces": ("team-a",)}, True),
        ({"namespaces": ("team-b",)}, False),
        ({"kinds": ("PyTorchJob",)}, True),
        ({"kinds": ("TFJob",)}, False),
        ({"labels": "team=vision"}, True),
        ({"labels": "team in (text,vision),!debug"}, True),
        ({"labels": "team!=vision"}, False),
        ({"labels": "debug"}, False),
        ({"namespaces": ("team-a",), "labels": "debug"}, False),
    ],
)
def test_a_route_admits_what_passes_all_of_its_filters(filters: dict[str, object], admitted: bool) -> None:
    assert webhook_route("a", **filters).admits(transition(team="vision")) is admitted


def test_each_namespace_has_routes_of_its_own() -> None:
    settings = settings_of(
        webhook_route("everybody"),
        webhook_route("a", namespaces=("team-a",)),
        webhook_route("b", namespaces=("team-b",)),
    )
    assert settings.receivers(transition("team-a")) == ("everybody", "a")
    assert settings.receivers(transition("team-b")) == ("everybody", "b")


def test_a_file_is_decoded() -> None:
    text = """
maxAgeSeconds: 3600
routes:
- name: oncall
  urlFile: /etc/gangline/notifications/url
  format: slack
  states: [failed, waiting]
- name: mail
  url: https://mail.example.org/send
  format: email
  from: gangline@example.org
  to: [oncall@example.org]
  authorizationFile: /etc/gangline/notifications/token
"""
    settings = parse_settings(text, "routes.yaml")
    slack, mail = settings.routes
    assert settings.max_age_seconds == 3600
    assert (slack.format, slack.states) == (MessageFormat.SLACK, (NotifiedState.FAILED, NotifiedState.WAITING))
    assert (mail.sender, mail.to) == ("gangline@example.org", ("oncall@example.org",))


def test_json_is_decoded() -> None:
    text = '{"routes": [{"name": "a", "url": "https://example.org/x"}]}'
    assert parse_settings(text, "f").routes == (NotificationRoute(name="a", url="https://example.org/x"),)


ROUTE = "routes:\n- name: a\n  "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: expected one document with routes, got 0"),
        ("routes: []", "f:1: routes: has no route; write one, or leave the file out"),
        ("route: []", "f:1: routes: required field is missing"),
        (ROUTE + "url: https://h/\n  stats: [failed]", "f:4: routes[0].stats: unknown field"),
        (
            ROUTE + "states: [failed]",
            "f:2: routes[0]: has no receiver or several; write one of url, urlFile and command",
        ),
        (ROUTE + "url: https://h/\n  urlFile: /x", "f:2: routes[0]: has no receiver or several"),
        (ROUTE + "url: example.org/hook", "f:3: routes[0].url: is not a URL of http or https"),
        (ROUTE + "url: file:///etc/passwd", "f:3: routes[0].url: is not a URL of http or https"),
        (ROUTE + "url: 'http://h:99999/'", "f:3: routes[0].url: is not a URL"),
        (ROUTE + "url: https://me:secret@h/", "f:3: routes[0].url: has a password in its URL"),
        (ROUTE + "urlFile: url", "f:3: routes[0].urlFile: is not an absolute path"),
        (ROUTE + "command: [date]", "f:3: routes[0].command: is for gangline up and gangline run"),
        (ROUTE + "url: https://h/\n  format: email", "f:4: routes[0].format: email needs from and to"),
        (ROUTE + "url: https://h/\n  to: [a@b]", "f:4: routes[0].to: is for format: email"),
        (ROUTE + "url: https://h/\n  labels: 'a in ('", "f:4: routes[0].labels: is not a label selector"),
        (ROUTE + "url: https://h/\n  body: {a: '{nme}'}", "f:4: routes[0].body: has {nme}, which is no field"),
        (ROUTE + "url: https://h/\n  body: {a: x}\n  format: slack", "takes the place of format: slack"),
        (ROUTE + "url: https://h/\n  timeoutSeconds: 0", "f:4: routes[0].timeoutSeconds"),
        ("routes:\n- name: A\n  url: https://h/", "f:2: routes[0].name"),
        ("routes:\n- {name: a, url: https://h/}\n- {name: a, url: https://h/}", "two routes are called a; rename one"),
    ],
)
def test_a_mistake_is_reported_in_one_line_without_the_url(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_settings(text, "f")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_commands_are_for_callers_that_allow_them() -> None:
    assert parse_settings(ROUTE + "command: [date]", "f", allow_commands=True).routes[0].command == ("date",)


def test_options_of_the_command_line() -> None:
    file = "routes:\n- name: filed\n  command: [cat]"
    options = ("https://example.org/x", "slack=https://chat.example.org/y", "command:cat >> log", "routes.yaml")
    first, slack, command, filed = settings_from_options(options, {"routes.yaml": file}).routes
    assert (first.name, first.url, first.format) == ("notify-1", "https://example.org/x", MessageFormat.GENERIC)
    assert (slack.url, slack.format) == ("https://chat.example.org/y", MessageFormat.SLACK)
    assert command.command == ("/bin/sh", "-c", "cat >> log")
    assert filed.name == "filed"


def test_a_url_of_slack_gets_messages_for_slack() -> None:
    assert route_of_option("https://hooks.slack.com/services/T/B/x", "a").format is MessageFormat.SLACK


@pytest.mark.parametrize(
    ("option", "is_file"),
    [("routes.yaml", True), ("/a/b", True), ("https://h/", False), ("slack=https://h/", False), ("command:x", False)],
)
def test_what_is_a_file(option: str, is_file: bool) -> None:
    assert is_file_option(option) is is_file


@pytest.mark.parametrize("option", ["ftp://h/", "slack=h", "command: ", "https://u:p@h/", "https://h/a b"])
def test_an_option_that_cannot_be_used(option: str) -> None:
    with pytest.raises(InputError, match="--notify"):
        route_of_option(option, "a")


def test_the_fields_of_a_body_are_those_that_are_documented() -> None:
    assert tuple(template_fields(transition())) == FIELD_NAMES

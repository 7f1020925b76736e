"""docs/notifications.md is true: its files are read, its snippet verifies, its lists are complete."""

import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gangline.install.value_fields import merged_values
from gangline.install.values import InstallValues
from gangline.notify.delivery import DeliveryResult
from gangline.notify.notifier import MAX_UNWRITTEN
from gangline.notify.plan.retries import MAX_DELAY
from gangline.notify.plan.routes import FIELD_NAMES, NotificationRoute, NotificationSettings, parse_settings
from gangline.notify.plan.signature import signature_headers, signing_keys
from gangline.notify.plan.transitions import NotifiedState, Transition
from gangline.operator.assembly import LAST_DELIVERIES, NOTIFICATIONS_KEY
from gangline.operator.settings import KUBEFLOW_LEASE, NOTIFICATIONS_SUFFIX

PAGE = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text()
KEY = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def fields_in_table(heading: str) -> set[str]:
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall("`(\\w+)`", row.split("|")[1])
    }


def test_the_files_of_routes_are_read() -> None:
    routes, own_body, values = blocks("yaml")
    assert [route.name for route in parse_settings(routes, "page").routes] == ["on-call", "team-a", "mail"]
    assert parse_settings(own_body, "page").routes[0].body
    installed: InstallValues = merged_values(yaml.safe_load(values))
    assert parse_settings(installed.notifications.config, "values").routes[0].url_file.startswith("/etc/gangline/")


def test_all_fields_and_states_are_listed() -> None:
    def wire_names(model: Any) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(model)}

    assert fields_in_table("field of a route") | {"from", "to"} == wire_names(NotificationRoute)
    assert fields_in_table("field of the file") | {"routes"} == wire_names(NotificationSettings)
    assert fields_in_table("state") == {state.value for state in NotifiedState}
    assert [name for name in FIELD_NAMES if f"`{{{name}}}`" not in PAGE] == []
    assert [result for result in DeliveryResult if f"`{result}`" not in PAGE] == []


def test_the_defaults_are_those_of_the_code() -> None:
    for model in (NotificationRoute, NotificationSettings):
        for field in msgspec.structs.fields(model):
            found = re.search(rf"^\| `{field.encode_name}` \| `(\w+)` \|", PAGE, re.MULTILINE)
            if found:
                assert found[1] == str(field.default)
    assert "for ten minutes" in PAGE
    assert f"at most {MAX_UNWRITTEN} notifications" in PAGE
    assert (MAX_DELAY.total_seconds(), LAST_DELIVERIES.total_seconds()) == (300, 5)
    assert f"`{KUBEFLOW_LEASE}{NOTIFICATIONS_SUFFIX}`" in PAGE
    assert f"`{NOTIFICATIONS_KEY.name}` in `{NOTIFICATIONS_KEY.namespace}`" in PAGE


def test_the_example_of_a_body_has_the_fields_of_a_body() -> None:
    (example,) = blocks("json")
    names = {field.encode_name for field in msgspec.structs.fields(Transition)} | {"text"}
    assert set(json.loads(example)) == names


@pytest.fixture
def verified() -> Any:
    (snippet,) = blocks("python")
    namespace: dict[str, Any] = {}
    exec(snippet, namespace)
    return namespace["verified"]


def test_the_snippet_accepts_what_is_signed(verified: Any) -> None:
    body = b'{"state":"failed"}'
    headers = signature_headers(signing_keys(KEY, "key"), "uid_failed-1", int(time.time()), body)
    assert verified(KEY, headers, body)
    both = signature_headers(signing_keys(f"{KEY[:-2]}A=\n{KEY}", "key"), "uid_failed-1", int(time.time()), body)
    assert verified(KEY, both, body)


def test_the_snippet_refuses_what_was_changed_or_is_old_or_has_another_key(verified: Any) -> None:
    now, body = int(time.time()), b'{"state":"failed"}'
    headers = signature_headers(signing_keys(KEY, "key"), "uid_failed-1", now, body)
    assert not verified(KEY, headers, b'{"state":"succeeded"}')
    assert not verified(KEY, {**headers, "webhook-id": "uid_failed-2"}, body)
    assert not verified(KEY, {**headers, "webhook-timestamp": str(now - 60)}, body)
    assert not verified(KEY, headers, body, now + 301)
    assert not verified(KEY.replace("MDEy", "MDEz"), headers, body)

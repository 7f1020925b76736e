"""Our rules for the built-in kinds against those of a real server: the same objects stored, the same problems told."""

import json
import random
import urllib.error
import uuid
from email.message import Message
from typing import Any

import pytest

from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from support.cases.kinds import (
    RESOURCES,
    CreateResult,
    cause_lines,
    kind_strategy,
    load_cases,
    load_updates,
    mutated_body,
    normalized_object,
    our_create_result,
    our_update_result,
    with_name,
    with_namespace,
)
from support.servers.real import RealServer

JSON = dict[str, Any]
NOT_OURS = {400, 403, 409, 500}
"""Decoding, admission and storage are the registry's."""


@pytest.fixture(scope="module")
def kinds_namespace(real_server: RealServer) -> str:
    name = f"kinds-{uuid.uuid4().hex[:8]}"
    assert real_server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    return name


def answer(server: RealServer, method: str, path: str, body: JSON) -> tuple[int, JSON, list[str]]:
    """Status, body and the texts of the warnings."""
    try:
        with server.open(method, path, body) as response:
            return response.status, json.load(response), warnings(response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), warnings(error.headers)


def warnings(headers: Message) -> list[str]:
    return [json.loads(value.split(" ", 2)[2]) for name, value in headers.items() if name.lower() == "warning"]


def differences(status: int, body: JSON, said: list[str], found: CreateResult) -> str:
    """Empty when we agree with the real server."""
    if status in NOT_OURS:
        return ""
    if status == 422:
        causes = cause_lines(body["details"].get("causes", []))
        return "" if causes == cause_lines(found.causes) else f"real {causes}\nours {cause_lines(found.causes)}"
    real = normalized_object(body)
    if found.stored != real:
        return f"real {real}\nours {found.stored} {cause_lines(found.causes)}"
    return "" if sorted(said) == sorted(found.warnings) else f"real {said}\nours {found.warnings}"


def create(server: RealServer, namespace: str, kind: str, body: JSON) -> str:
    resource = RESOURCES[kind]
    path = f"{resource.path(namespace)}?dryRun=All&fieldValidation=Ignore"
    status, stored, said = answer(server, "POST", path, body)
    # A body that cannot be decoded never gets to our rules.
    if status in NOT_OURS:
        return ""
    wrong = differences(status, stored, said, our_create_result(resource, body, namespace))
    return f"{kind} {json.dumps(body)}\n{wrong}" if wrong else ""


@pytest.mark.parametrize("kind", RESOURCES)
def test_created_objects_are_stored_or_refused_alike(real_server: RealServer, kinds_namespace: str, kind: str) -> None:
    bodies = [with_namespace(body, kinds_namespace) for name, body in load_cases() if name == kind]
    wrong = [told for body in bodies if (told := create(real_server, kinds_namespace, kind, body))]
    assert bodies
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
def test_objects_changed_at_random_are_stored_or_refused_alike(real_server: RealServer, kinds_namespace: str) -> None:
    chance = random.Random(23)
    # Kinds that share the declared strategy are checked by their schema and a table: enough for what programs send,
    # but not in all of the words that kube-apiserver has for what they do not.
    cases = [case for case in load_cases() if not isinstance(kind_strategy(RESOURCES[case[0]]), DeclaredStrategy)]
    wrong = []
    for _ in range(400):
        kind, body = chance.choice(cases)
        changed = with_name(mutated_body(with_namespace(body, kinds_namespace), chance))
        if told := create(real_server, kinds_namespace, kind, changed):
            wrong.append(told)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(
    ("kind", "old", "new", "of_status"),
    list(load_updates()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_updates_are_stored_or_refused_alike(
    real_server: RealServer, kinds_namespace: str, kind: str, old: JSON, new: JSON, of_status: bool
) -> None:
    resource, name = RESOURCES[kind], f"u{uuid.uuid4().hex[:8]}"
    path = resource.path(kinds_namespace)
    status, first, _ = answer(real_server, "POST", path, with_namespace(with_name(old, name), kinds_namespace))
    assert status == 201, first
    changed = with_namespace(with_name(new, name), kinds_namespace)
    changed["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    where = f"{path}/{name}{'/status' if of_status else ''}?fieldValidation=Ignore"
    status, stored, said = answer(real_server, "PUT", where, changed)
    if not resource.namespaced:
        real_server.call("DELETE", f"{path}/{name}")
    found = our_update_result(resource, changed, first, kinds_namespace, status=of_status)
    assert status in {200, 422}, stored
    assert not differences(status, stored, said, found)

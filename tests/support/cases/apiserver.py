"""Plays the cases of an API oracle against a server, many at a time.

The oracle is a folder of requests with the answers a real kube-apiserver gave. What counts as the same answer is decided
by the oracle's own `runner.py`, whose functions are used here; only the sending is ours, because the runner plays one case
after another and needs a library that we do not have.
"""

import asyncio
import copy
import importlib.util
import itertools
import json
import re
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

import aiohttp
import msgspec
import yaml

from gangline.base.clock import Clock
from support.yaml_files import load_yaml

USER_AGENT = "python-httpx"  # part of the recorded answers: it names the field manager
WATCH_SETTLE_TIME, POLL_INTERVAL = timedelta(seconds=0.3), timedelta(seconds=0.1)
EVENT_TIMEOUT_SECONDS, CHANGE_TIMEOUT_SECONDS = 15.0, 20.0  # seconds
MAX_WAIT_SECONDS = (
    2.0  # seconds; a whole cluster's controllers were given up to 40 to notice things, ours notice at once
)


class ApiOracle:
    """A folder with `cases`, `golden` and `runner.py`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rules = _load_runner(folder / "runner.py")

    def cases(self) -> Iterator[tuple[str, Any]]:
        """All cases, by `area/name`."""
        for file in sorted((self._folder / "cases").glob("*.yaml")):
            for case in load_yaml(file.read_text()):
                yield f"{file.stem}/{case['name']}", case

    def differences(self, name: str, answers: Any) -> list[str]:
        """The differences between our answers and the recorded ones."""
        golden = json.loads((self._folder / "golden" / f"{name}.json").read_text())
        ours = json.loads(json.dumps(answers))
        return [
            f"{name}{where}: {json.dumps(theirs)[:200]} != {json.dumps(got)[:200]}"
            for where, theirs, got in self.rules.diff(golden, ours)
        ]


def _load_runner(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("oracle_runner", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _stubbed_module("httpx", SimpleNamespace(Client=lambda **_: None)):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _stubbed_module(name: str, module: Any) -> Iterator[None]:
    """The runner imports an HTTP library for its own client, which we do not use."""
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


class CaseSource(Protocol):
    """Where cases come from, and how answers are compared."""

    rules: ModuleType

    def differences(self, name: str, answers: Any) -> list[str]: ...


class OraclePlayer:
    """Plays cases on one server."""

    def __init__(self, oracle: CaseSource, session: aiohttp.ClientSession, clock: Clock) -> None:
        self._oracle, self._session, self._clock = oracle, session, clock
        self._numbers = itertools.count(100000)

    async def play_all(self, cases: Iterable[tuple[str, Any]], at_once: int = 48) -> dict[str, list[str]]:
        """The differences of every case, by its name; an empty list where there is none."""
        found: dict[str, list[str]] = {}
        turns = asyncio.Semaphore(at_once)

        async def play(name: str, case: Any) -> None:
            async with turns:
                found[name] = self._oracle.differences(name, await self.play(case))

        async with asyncio.TaskGroup() as group:
            for name, case in cases:
                group.create_task(play(name, case))
        return found

    async def play(self, case: Any) -> list[Any]:
        """The normalised answers to a case's requests."""
        stem = re.sub("[^a-z0-9]+", "-", case["name"].lower())[:40].strip("-")
        names = {"NS": f"c-{stem}-{next(self._numbers)}"}
        own = not case.get("no_namespace")
        if own:
            await self._send("POST", "/api/v1/namespaces", body={"metadata": {"name": names["NS"]}})
        async with asyncio.TaskGroup() as group:
            playing = _CaseRun(self._oracle.rules, self._session, self._clock, names, group)
            for step in case["steps"]:
                await playing.run_step(step)
            playing.close()
        if own:
            await self._send("DELETE", f"/api/v1/namespaces/{names['NS']}")
        return playing.shots

    async def _send(self, method: str, path: str, body: Any = None) -> None:
        async with self._session.request(method, path, json=body) as response:
            assert response.status < 300 or response.status == 404, await response.text()


class _BackgroundWatch(msgspec.Struct):
    """A watch in the background, and what it has seen so far."""

    task: asyncio.Task[None] | None = None
    status: int | None = None
    events: list[Any] = msgspec.field(default_factory=list)


class _CaseRun:
    """A case being played."""

    def __init__(
        self,
        rules: ModuleType,
        session: aiohttp.ClientSession,
        clock: Clock,
        names: dict[str, str],
        group: asyncio.TaskGroup,
    ) -> None:
        self._rules, self._session, self._clock, self._names = rules, session, clock, names
        self._group = group
        self._watches: dict[str, _BackgroundWatch] = {}
        self.shots: list[Any] = []

    async def run_step(self, raw: Any) -> None:
        step = self._rules.fill(copy.deepcopy(raw), self._names)
        if "wait" in step:
            await self._clock.sleep(timedelta(seconds=min(step["wait"], MAX_WAIT_SECONDS)))
        elif "watch" in step:
            watch = self._watches[step["save_as"]] = _BackgroundWatch()
            watch.task = self._group.create_task(self._follow(watch, step))
            ends = self._clock.monotonic() + EVENT_TIMEOUT_SECONDS
            while watch.status is None and self._clock.monotonic() < ends:
                await self._clock.sleep(POLL_INTERVAL)
            await self._clock.sleep(WATCH_SETTLE_TIME)
        elif "events" in step:
            self.shots.append(await self._events(step))
        else:
            self.shots.append(await self._send_until(raw, step))

    def close(self) -> None:
        for watch in self._watches.values():
            if watch.task is not None:
                watch.task.cancel()

    async def _follow(self, watch: _BackgroundWatch, step: Any) -> None:
        query = {**(step.get("query") or {}), "watch": "true"}
        async with self._session.get(step["watch"], params=_query_text(query), headers=_headers(step)) as response:
            watch.status = response.status
            async for line in response.content:
                if line.strip():
                    watch.events.append(json.loads(line))

    async def _events(self, step: Any) -> Any:
        watch = self._watches[step["events"]]
        ends = self._clock.monotonic() + EVENT_TIMEOUT_SECONDS
        while len(self._kept_events(watch, step)) < step["count"] and self._clock.monotonic() < ends:
            await self._clock.sleep(POLL_INTERVAL)
        seen = self._kept_events(watch, step)
        for name, path in (step.get("save") or {}).items():
            self._names[name] = str(self._rules.at(seen, path))
        shot = {"status": watch.status, "events": self._rules.normal(seen[: step["count"]], self._names)}
        for path in step.get("ignore", []):
            self._rules.drop(shot["events"], path.split("."))
        return shot

    def _kept_events(self, watch: _BackgroundWatch, step: Any) -> list[Any]:
        events = list(watch.events)
        if "keep" not in step:
            return events
        kept: list[Any] = self._rules.kept({"events": events}, {"at": "events", **step["keep"]})["events"]
        return kept

    async def _send_until(self, raw: Any, step: Any) -> Any:
        ends, until = self._clock.monotonic() + CHANGE_TIMEOUT_SECONDS, step.get("until")
        while True:
            status, headers, body = await self._send(step)
            if not until or self._has_arrived(until, status, body) or self._clock.monotonic() > ends:
                break
            await self._clock.sleep(POLL_INTERVAL)
        for name, path in (step.get("save") or {}).items():
            self._names[name] = str(self._rules.at(body, path))
        body = self._rules.normal(copy.deepcopy(body), self._names)
        for path in step.get("ignore", []):
            self._rules.drop(body, path.split("."))
        return {
            "step": f"{raw['method']} {raw['path']}",
            "status": status,
            "type": headers.get("Content-Type", "").split(";")[0],
            "warnings": [self._rules.normal(text, self._names) for text in headers.getall("Warning", ())],
            "body": body,
        }

    def _has_arrived(self, until: Any, status: int, body: Any) -> bool:
        if "status" in until and status == until["status"]:
            return True
        return "at" in until and self._rules.at(body, until["at"]) == until["is"]

    async def _send(self, step: Any) -> tuple[int, Any, Any]:
        headers, content = _headers(step), None
        if "raw" in step:
            content = step["raw"]
        elif "body" in step:
            content = json.dumps(step["body"])
        if content is not None:
            headers.setdefault("Content-Type", step.get("type", "application/json"))
        async with self._session.request(
            step["method"], step["path"], params=_query_text(step.get("query")), data=content, headers=headers
        ) as response:
            text = await response.text()
            body = _decode_body(text, response.headers.get("Content-Type", ""))
            return response.status, response.headers, self._kept_fields(step, body)

    def _kept_fields(self, step: Any, body: Any) -> Any:
        return self._rules.kept(body, step["keep"]) if "keep" in step else body


def _decode_body(text: str, content_type: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text) if content_type.startswith("application/yaml") else text


def _headers(step: Any) -> dict[str, str]:
    accept = {"Accept": step["accept"]} if "accept" in step else {}
    return {**(step.get("headers") or {}), **accept}


def _query_text(query: Mapping[str, Any] | None) -> dict[str, str]:
    shown = {True: "true", False: "false"}
    return {name: shown[value] if isinstance(value, bool) else str(value) for name, value in (query or {}).items()}


def oracle_session(url: str, token: str, ca: Path) -> aiohttp.ClientSession:
    """An HTTP session with the headers of the recording client."""
    trust = ssl.create_default_context(cafile=str(ca))
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        headers={"Authorization": f"Bearer {token}", "User-Agent": USER_AGENT},
        skip_auto_headers=("Content-Type",),
    )

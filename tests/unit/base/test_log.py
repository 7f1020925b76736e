import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from gangline.base.log import LogFormat, configure_logging, log_context

log = logging.getLogger("test.log")


class Secretive(msgspec.Struct):
    password: str


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_line_has_event_bound_fields_and_own_fields(stream: io.StringIO) -> None:
    configure_logging(form=LogFormat.JSON, stream=stream)
    with log_context(controller="tfjob", namespace="research"), log_context(name="mnist", reconcileID="r1"):
        log.info("pod created", extra={"pod": "mnist-worker-0", "after": timedelta(seconds=1.5), "try": 2})
    log.debug("not shown")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("ts").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "test.log",
        "msg": "pod created",
        "controller": "tfjob",
        "namespace": "research",
        "name": "mnist",
        "reconcileID": "r1",
        "pod": "mnist-worker-0",
        "after": 1.5,
        "try": 2,
    }


def test_fields_are_gone_after_the_block(stream: io.StringIO) -> None:
    configure_logging(form=LogFormat.JSON, stream=stream)
    with log_context(name="mnist"):
        pass
    log.info("done")
    assert "name" not in json.loads(stream.getvalue())


def test_whole_objects_and_long_values_are_not_shown(stream: io.StringIO) -> None:
    configure_logging(form=LogFormat.JSON, stream=stream)
    extra = {"body": {"data": "c2VjcmV0"}, "object": Secretive("hunter2"), "error": "x" * 5000}
    log.warning("refused", extra=extra)
    found = json.loads(stream.getvalue())
    assert found["body"] == "<dict>"
    assert found["object"] == "<Secretive>"
    assert len(found["error"]) == 2001


def test_error_comes_with_its_stack(stream: io.StringIO) -> None:
    configure_logging(form=LogFormat.JSON, stream=stream)
    try:
        raise ZeroDivisionError("oops")
    except ZeroDivisionError as error:
        log.warning("failed", exc_info=error)
    assert "ZeroDivisionError: oops" in json.loads(stream.getvalue())["stacktrace"]


def test_text_line_is_for_people(stream: io.StringIO) -> None:
    configure_logging(logging.DEBUG, LogFormat.TEXT, stream)
    with log_context(controller="tfjob"):
        log.debug("looked", extra={"error": "not found: a b", "empty": ""})
    line = stream.getvalue()
    assert line[8:] == ' DEBUG   looked controller=tfjob error="not found: a b" empty=""\n'


@pytest.mark.parametrize("terminal", [True, False])
def test_format_follows_the_stream(stream: io.StringIO, terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    target = Stream()
    configure_logging(stream=target)
    log.info("hello")
    assert target.getvalue().startswith("{") == (not terminal)


def test_standard_error_is_the_default(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    log.info("hello")
    assert "hello" in capsys.readouterr().err

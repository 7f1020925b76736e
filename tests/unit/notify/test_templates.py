"""The bodies of requests, with text of others in them."""

import json

import msgspec
import pytest

from gangline.api.kubeflow.training import Failure
from gangline.api.meta import JSON
from gangline.notify.plan.routes import MessageFormat, NotificationRoute
from gangline.notify.plan.templates import plain_text, request_body, subject
from gangline.notify.plan.transitions import Transition, marks, transition_of
from support.builders.notified_jobs import JobHistory, webhook_route
from support.builders.observed_jobs import with_status


def newest(history: JobHistory) -> Transition:
    last = marks(history.job, history.now, history.now - history.now.replace(year=2000))[-1]
    return transition_of(history.job, last.key, last.at)


def body(route: NotificationRoute, transition: Transition) -> JSON:
    decoded: JSON = json.loads(request_body(route, transition))
    return decoded


FAILED = newest(JobHistory(team="vision").create().run().fail())


def test_the_generic_body_has_all_fields_the_text_and_the_command() -> None:
    assert body(webhook_route("a"), FAILED) == {
        "id": FAILED.id,
        "state": "failed",
        "time": "2026-01-01T12:00:02Z",
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "namespace": "team-a",
        "name": "bert",
        "uid": "uid-of-bert",
        "labels": {"team": "vision"},
        "reason": "JobFailedTrue",
        "message": "PyTorchJob bert: Failed",
        "restarts": 0,
        "cause": "worker-1 exit 1: CUDA out of memory",
        "log": ["step 1", "RuntimeError: CUDA out of memory"],
        "why": "gangline why bert -n team-a",
        "text": "PyTorchJob team-a/bert failed: worker-1 exit 1: CUDA out of memory\n"
        "PyTorchJob bert: Failed\n  step 1\n  RuntimeError: CUDA out of memory\ngangline why bert -n team-a",
    }


@pytest.mark.parametrize(
    ("history", "text"),
    [
        (JobHistory().create(), "PyTorchJob team-a/bert is created"),
        (JobHistory().create().run(), "PyTorchJob team-a/bert is running"),
        (JobHistory().create().run().succeed(), "PyTorchJob team-a/bert succeeded"),
        (JobHistory().create().suspend(), "PyTorchJob team-a/bert is suspended"),
        (JobHistory().create().suspend().resume(), "PyTorchJob team-a/bert is resumed"),
        (JobHistory().create().block(), "PyTorchJob team-a/bert is blocked"),
        (
            JobHistory().create().restart(),
            "PyTorchJob team-a/bert restarted (restarts: 1): worker-1 exit 1: CUDA out of memory",
        ),
    ],
)
def test_every_state_has_a_subject(history: JobHistory, text: str) -> None:
    assert subject(newest(history)) == text


def test_a_state_without_trouble_has_one_line() -> None:
    assert plain_text(newest(JobHistory().create().run())) == "PyTorchJob team-a/bert is running"


def test_a_message_for_slack() -> None:
    message = body(webhook_route("a", format=MessageFormat.SLACK), FAILED)
    assert message["text"] == "PyTorchJob team-a/bert failed: worker-1 exit 1: CUDA out of memory"
    assert message["attachments"][0]["color"] == "#c62828"
    assert message["attachments"][0]["text"].endswith("gangline why bert -n team-a")


def test_a_mail_has_a_subject_of_one_line() -> None:
    route = webhook_route(
        "a", format=MessageFormat.EMAIL, sender="g@example.org", to=("a@example.org", "b@example.org")
    )
    cause = msgspec.structs.replace(FAILED, cause="worker-1 exit 1: x\r\nBcc: everybody@example.org")
    message = body(route, cause)
    assert (message["from"], message["to"]) == ("g@example.org", ["a@example.org", "b@example.org"])
    assert message["subject"] == "PyTorchJob team-a/bert failed: worker-1 exit 1: x  Bcc: everybody@example.org"


def test_text_of_a_job_cannot_call_a_whole_channel_in_slack_nor_turn_the_direction_of_writing() -> None:
    failure = Failure(replica="w", exit_code=1, message="<!channel> & <https://evil.example|click>", log=("a\u202eb",))
    history = JobHistory().create().fail()
    job = with_status(history.job, msgspec.structs.replace(history.status, first_failure=failure))
    text = json.dumps(body(webhook_route("a", format=MessageFormat.SLACK), newest_of(job, history)))
    assert "<!channel>" not in text
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in text
    assert "\\u202e" not in text


def newest_of(job: object, history: JobHistory) -> Transition:
    history.job = job
    return newest(history)


def test_a_body_of_ones_own_has_its_fields_replaced_once() -> None:
    own = {"summary": "{subject}", "labels": [{"job": "{namespace}/{name}"}], "severity": 3, "raw": "{cause}"}
    transition = msgspec.structs.replace(FAILED, cause='{name} "quoted" \\')
    assert body(webhook_route("a", body=own), transition) == {
        "summary": 'PyTorchJob team-a/bert failed: {name} "quoted" \\',
        "labels": [{"job": "team-a/bert"}],
        "severity": 3,
        "raw": '{name} "quoted" \\',
    }


def test_a_long_subject_is_cut() -> None:
    assert len(subject(msgspec.structs.replace(FAILED, cause="x" * 5000))) == 200

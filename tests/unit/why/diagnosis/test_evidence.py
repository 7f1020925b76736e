"""Commands that a diagnosis offers: they can be typed as printed."""

import json
import shlex

import pytest

from gangline.api.meta import Key
from gangline.why.diagnosis.case import ClaimFact, VolumeFact
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.rules.evidence import create_command, creation_step
from support.cases.why import NOW, make_job_facts, make_replica_facts, make_snapshot, waiting_state


def created_object(step: str) -> tuple[dict[str, object], list[str]]:
    """The object of a printed command, and the words after the pipe."""
    words = shlex.split(step[step.index("echo ") :])
    return json.loads(words[1]), words[3:]


@pytest.mark.parametrize(
    ("namespace", "words"),
    [("", ["apply", "-f", "-"]), ("default", ["apply", "-f", "-"]), ("a", ["apply", "-n", "a", "-f", "-"])],
)
def test_a_command_creates_an_object_without_a_file_and_without_kubectl(namespace: str, words: list[str]) -> None:
    body, rest = created_object(create_command("v1", "ConfigMap", Key(namespace, "c"), {"data": {"a": "it's"}}))
    assert body == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "it's"}}
    assert rest == ["gangline", *words]


def test_a_claim_that_is_missing_can_be_created_as_printed() -> None:
    replica = make_replica_facts(0, "Pending", volumes=(VolumeFact("data", "persistentVolumeClaim", "corpus"),))
    case = make_snapshot(make_job_facts("Created"), replica, claims={"corpus": ClaimFact("corpus", exists=False)})
    body, words = created_object(diagnose(case).next[0])
    assert (body["kind"], body["metadata"]) == ("PersistentVolumeClaim", {"name": "corpus"})
    assert words == ["gangline", "apply", "-n", "team-a", "-f", "-"]


@pytest.mark.parametrize(("what", "field"), [("configmap", "data"), ("secret", "stringData")])
def test_a_configuration_that_is_missing_can_be_created_as_printed(what: str, field: str) -> None:
    state = waiting_state("CreateContainerConfigError", f'{what} "conf" not found')
    case = make_snapshot(make_job_facts("Created"), make_replica_facts(0, "Pending", state))
    body, _ = created_object(diagnose(case).next[0])
    assert (str(body["kind"]).lower(), body[field]) == (what, {"KEY": "VALUE"})


def test_after_a_run_the_object_belongs_into_the_file_of_the_job() -> None:
    """A run is over: no server is left that could create it. The next run creates what its file holds."""
    claims = {"corpus": ClaimFact("corpus", exists=False)}
    replica = make_replica_facts(0, "Pending", volumes=(VolumeFact("data", "persistentVolumeClaim", "corpus"),))
    job = make_job_facts("Created", run_command="gangline run job.yaml", run_ended_at=NOW)
    step = diagnose(make_snapshot(job, replica, claims=claims)).next[0]
    assert "gangline" not in step
    assert json.loads(step[step.index("{") :])["metadata"] == {"name": "corpus"}


def test_the_plane_that_was_stopped_is_started_first() -> None:
    job = make_job_facts("Created", run_ended_at=NOW)
    assert creation_step(job, "ConfigMap", "c", {}).startswith("gangline up --detach && echo ")

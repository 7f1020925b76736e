"""Commands that a diagnosis offers: they can be typed as printed."""

import json
import shlex

import pytest

from gangline.api.meta import Key
from gangline.why.diagnosis.case import ClaimFact, VolumeFact
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.rules.evidence import create_command
from support.cases.why import make_job_facts, make_replica_facts, make_snapshot, waiting_state


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

"""The verbs on a plane with real processes, as a person types them."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from support.cluster.clients import DetachedPlane, Kubectl

WAIT = 60.0  # seconds


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """What it printed, word by word."""
        return [line.split() for line in self.out.splitlines()]


class Gangline:
    """The command, with a plane as its server."""

    def __init__(self, plane: DetachedPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder

    def __call__(self, *words: str | Path, stdin: str = "") -> Done:
        done = subprocess.run(
            self.command(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT,
            env=self.plane.environment,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "gangline", *map(str, words)]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """One that goes on; the caller ends it."""
        return subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, text=True, env=self.plane.environment)

    def submit(self, name: str, **programs: str) -> None:
        """A TFJob with one replica for each program, by type."""
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(job(name, **programs)))
        done = self("submit", file)
        assert done == Done(0, f"tfjob.kubeflow.org/{name} created\n", ""), done

    def says(self, holds: Callable[[Done], bool], *words: str) -> Done:
        """What a command says once that is as it should be: some news come after others, in no time that a test knows."""
        end = time.monotonic() + WAIT
        while not holds(done := self(*words)):
            assert time.monotonic() < end, done
        return done

    def until(self, name: str, condition: str) -> None:
        done = self("wait", name, "--for", f"condition={condition}", "--timeout", "50s")
        assert done.code == 0, done


def job(name: str, **programs: str) -> dict[str, Any]:
    def replica(program: str) -> dict[str, Any]:
        command = [sys.executable, "-u", "-c", program]
        container = {"name": "tensorflow", "image": "any", "command": command}
        return {"replicas": 1, "template": {"spec": {"containers": [container]}}}

    specs = {kind.capitalize(): replica(program) for kind, program in programs.items()}
    specs = {"PS" if kind == "Ps" else kind: spec for kind, spec in specs.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": specs},
    }


LASTING = "import time\nprint('up')\ntime.sleep(600)"
QUICK = "print('done')"
BROKEN = "import sys\nprint('about to break')\nsys.exit(3)"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    found = DetachedPlane(tmp_path_factory.mktemp("verbs") / "plane")
    found.up()
    yield found
    found.down()


@pytest.fixture
def gang(plane: DetachedPlane, tmp_path: Path) -> Gangline:
    return Gangline(plane, tmp_path)


def test_an_empty_namespace_says_so_to_people_only(gang: Gangline) -> None:
    assert gang("get", "jobs", "-n", "kube-public") == Done(0, "", "No resources found in kube-public namespace.\n")


def test_a_job_is_followed_from_submission_to_its_verdict(gang: Gangline) -> None:
    gang.submit("quick", chief=QUICK, worker=QUICK)
    assert gang("wait", "quick", "--timeout", "50s") == Done(0, "tfjob.kubeflow.org/quick succeeded\n", "")
    assert gang("logs", "quick", "--exit-code").code == 0
    # The job ends with its chief, and its worker may have yet to speak.
    both = ["chief-0| done", "worker-0| done"]
    gang.says(lambda done: sorted(done.out.splitlines()) == both, "logs", "quick")
    (header, row) = gang("get", "tfjob", "quick").lines
    assert header == ["NAME", "STATE", "READY", "RESTARTS", "QUEUE", "AGE", "REASON"]
    # A job ends with its chief; whether its worker had been counted by then is chance, and stays as it was.
    assert row[:2] + row[3:4] == ["quick", "Succeeded", "0"]
    assert row[2] in ("1/2", "2/2")
    assert gang("delete", "quick").out == 'tfjob.kubeflow.org "quick" deleted from default namespace\n'
    assert gang("get", "tfjob/quick").code == 1


def test_a_failed_job_tells_who_failed_and_exits_100(gang: Gangline) -> None:
    gang.submit("broken", worker=BROKEN)
    assert gang("wait", "broken", "--timeout", "50s").code == 100
    assert gang("wait", "broken", "--for", "condition=Running", "--timeout", "50s").code == 100
    assert gang("logs", "-f", "broken", "--exit-code") == Done(100, "worker-0| about to break\n", "")
    (row,) = gang("get", "jobs", "broken", "--no-headers").lines
    assert row[:3] == ["TFJob", "broken", "Failed"]
    assert " ".join(row[-3:]) == "worker-0 exit 3"
    page = gang("describe", "broken").out
    assert "First failure: worker-0 exit 3" in page
    assert "  worker-0| about to break" in page
    gang.says(lambda done: "TFJobFailed" in done.out, "events", "broken")
    gang("delete", "broken")


def test_what_is_not_there_has_its_own_exit_code(gang: Gangline) -> None:
    error = 'Error from server (NotFound): no training job "none" in namespace "default"; there is '
    for words in (
        ("logs", "none"),
        ("wait", "none"),
        ("describe", "none"),
        ("restart", "none"),
        ("events", "none"),
    ):
        done = gang(*words)
        assert (done.code, done.out, done.err.startswith(error)) == (102, "", True), done
    assert gang("get", "pod/none") == Done(1, "", 'Error from server (NotFound): pods "none" not found\n')
    assert gang("get", "pod/none", "--ignore-not-found").code == 0


def test_replicas_are_restarted_scaled_suspended_and_resumed(gang: Gangline) -> None:
    gang.submit("lasting", ps=LASTING, worker=LASTING)
    gang.until("lasting", "Running")
    kubectl = Kubectl(gang.plane)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.get("pods")["items"]}
    assert gang("restart", "lasting", "--replica", "worker/0").out == "tfjob.kubeflow.org/lasting worker-0 restarted\n"
    # The old one may take its time to go, and has its name until then.
    after, end = before, time.monotonic() + WAIT
    while after.get("lasting-worker-0") in (None, before["lasting-worker-0"]):
        assert time.monotonic() < end
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.get("pods")["items"]}
    assert after["lasting-ps-0"] == before["lasting-ps-0"]
    waited = gang("wait", "pod/lasting-worker-0", "--for", "condition=Ready", "--timeout", "50s")
    assert waited.code == 0, waited
    gang.until("lasting", "Running")
    assert gang("scale", "lasting", "--replicas", "2").out == "tfjob.kubeflow.org/lasting scaled: Worker 1 -> 2\n"
    ready = ("--for", "jsonpath={.status.replicaStatuses.Worker.active}=2", "--timeout", "50s")
    assert gang("wait", "lasting", *ready).code == 0
    assert gang("suspend", "lasting").out == "tfjob.kubeflow.org/lasting suspended\n"
    gang.until("lasting", "Suspended")
    assert gang("wait", "lasting", "--timeout", "100ms").code == 101
    assert gang("resume", "lasting").out == "tfjob.kubeflow.org/lasting resumed\n"
    gang.until("lasting", "Running")
    assert gang("delete", "lasting").code == 0
    assert gang("wait", "lasting", "--for", "delete").code == 0


def test_a_command_runs_in_a_replica_and_its_exit_code_is_ours(gang: Gangline) -> None:
    gang.submit("inside", worker=LASTING)
    gang.until("inside", "Running")
    assert gang("exec", "inside", "--", "sh", "-c", "echo hi; exit 7") == Done(7, "hi\n", "")
    assert gang("exec", "-i", "inside", "--replica", "worker/0", "--", "cat", stdin="abc") == Done(0, "abc", "")
    assert gang("exec", "inside", "--replica", "ps/0", "--", "true").code == 1
    rows = gang("top", "inside").lines
    assert rows[0][:3] == ["JOB", "POD", "NODE"]
    assert rows[1][:2] == ["inside", "inside-worker-0"]
    assert rows[1][4].endswith("Mi")
    gang("delete", "inside", "--now")


def test_logs_follow_replicas_that_do_not_exist_yet_until_the_job_ends(gang: Gangline) -> None:
    talking = "import time\nfor step in range(3): print('step', step); time.sleep(0.05)"
    held = job("later", worker=talking)
    held["spec"]["runPolicy"] = {"suspend": True}
    assert gang("create", "-f", "-", stdin=json.dumps(held)).code == 0
    with gang.start("logs", "-f", "--exit-code", "later") as following:
        try:
            assert gang("resume", "later").code == 0
            out, _ = following.communicate(timeout=WAIT)
        finally:
            following.kill()
    assert out == "worker-0| step 0\nworker-0| step 1\nworker-0| step 2\n"
    assert following.returncode == 0
    assert gang("logs", "later", "--replica", "worker/0", "--tail", "1", "--no-prefix").out == "step 2\n"
    gang("delete", "later")


def test_what_failed_is_remembered_when_its_pods_are_gone(gang: Gangline) -> None:
    cleaned = job("cleaned", worker=BROKEN)
    cleaned["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    assert gang("create", "-f", "-", stdin=json.dumps(cleaned)).code == 0
    assert gang("wait", "cleaned", "--timeout", "50s").code == 100
    assert gang("wait", "pod/cleaned-worker-0", "--for", "delete", "--timeout", "50s").code == 0
    done = gang("logs", "cleaned")
    assert done.out == "worker-0| about to break\n"
    assert "this was left of the first failure" in done.err
    gang("delete", "cleaned")


def test_logs_follow_a_container_that_is_started_again_in_its_pod(gang: Gangline) -> None:
    mark = gang.folder / "mark"
    once = f"import os, sys\nfirst = not os.path.exists({str(mark)!r})\nopen({str(mark)!r}, 'w')\n"
    held = job("again", worker=f"{once}print('first' if first else 'second')\nsys.exit(first)")
    held["spec"]["runPolicy"] = {"suspend": True}
    held["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    assert gang("create", "-f", "-", stdin=json.dumps(held)).code == 0
    with gang.start("logs", "-f", "--exit-code", "again") as following:
        try:
            assert gang("resume", "again").code == 0
            out, _ = following.communicate(timeout=WAIT)
        finally:
            following.kill()
    assert out.splitlines()[-1] == "worker-0| second"
    assert following.returncode == 0
    gang("delete", "again")


def test_watching_prints_every_state_of_a_job(gang: Gangline) -> None:
    held = job("watched", worker=QUICK)
    held["spec"]["runPolicy"] = {"suspend": True}
    assert gang("create", "-f", "-", stdin=json.dumps(held)).code == 0
    with gang.start("get", "jobs", "-w") as watching:
        try:
            assert watching.stdout is not None
            seen: list[str] = []
            while "Succeeded" not in seen:
                words = watching.stdout.readline().split()
                assert words, "the watch ended"
                if "watched" not in words:
                    continue
                seen.append(words[words.index("watched") + 1])
                # Before that it may be seen as it was created. And others may write about it while it is suspended.
                if seen[-1] == "Suspended" and seen.count("Suspended") == 1:
                    assert gang("resume", "watched").code == 0
        finally:
            watching.kill()
    assert "Suspended" in seen
    gang("delete", "watched")


def test_an_interrupt_ends_a_watch_without_a_word(gang: Gangline) -> None:
    with subprocess.Popen(
        gang.command("get", "namespaces", "-w"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=gang.plane.environment,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("NAME")
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=WAIT)
    assert (watching.returncode, err.strip()) == (130, "")


def test_a_refused_job_is_told_with_lines_of_its_file(gang: Gangline) -> None:
    bad = job("bad", worker=QUICK)
    bad["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "Ever"
    file = gang.folder / "bad.yaml"
    file.write_text(yaml.safe_dump(bad, sort_keys=False))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "Ever" in text)
    done = gang("apply", "-f", file)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: {file}:{line}: spec.tfReplicaSpecs.Worker.restartPolicy")


def test_applying_says_what_became_of_each_object(gang: Gangline) -> None:
    (gang.folder / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n")
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "stringData": {"k": "v"}}
    (gang.folder / "b.json").write_text(json.dumps(body))
    assert gang("apply", "-f", gang.folder, "--dry-run", "server").out == (
        "configmap/a created (server dry run)\nsecret/b created (server dry run)\n"
    )
    assert gang("apply", "-f", gang.folder).out == "configmap/a created\nsecret/b created\n"
    (gang.folder / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '2'}\n")
    assert gang("apply", "-f", gang.folder).out == "configmap/a configured\nsecret/b unchanged\n"
    assert gang("delete", "-f", gang.folder).code == 0


def test_a_plan_is_compared_with_what_runs(gang: Gangline) -> None:
    file = gang.folder / "planned.yaml"
    file.write_text(yaml.safe_dump(job("planned", worker=LASTING)))
    new = gang("plan", file, "--diff")
    assert new.code == 1
    assert "+ pod/planned-worker-0" in new.out.splitlines()
    gang("submit", file)
    gang.until("planned", "Running")
    assert gang("plan", file, "--diff").code == 0
    larger = job("planned", worker=LASTING)
    larger["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2
    file.write_text(yaml.safe_dump(larger))
    told = gang("plan", file, "--diff")
    assert told.code == 1
    missing = [line for line in told.out.splitlines() if line.startswith("+")]
    assert missing == ["+ service/planned-worker-1", "+ pod/planned-worker-1"]
    assert "~   spec.tfReplicaSpecs.Worker.replicas: 1 -> 2" in told.out.splitlines()
    none = gang("logs", "planned", "--previous")
    assert none == Done(0, "", "no replica of tfjob.kubeflow.org/planned was started again in its pod\n")
    gang("delete", "planned", "--now")


def test_the_doctor_finds_everything_in_place(gang: Gangline) -> None:
    done = gang("doctor", "-o", "json")
    assert done.code == 0
    found = {each["check"]: each["result"] for each in json.loads(done.out)}
    assert {"python", "packages", "disk", "ports", "clusters"} <= found.keys()
    server = {name: found[name] for name in ("server", "clocks", "definitions", "rights", "operator")}
    assert server == dict.fromkeys(server, "ok")


def test_a_shell_completes_names_of_jobs_and_namespaces(gang: Gangline) -> None:
    gang.submit("completed", worker=LASTING)
    program = "from gangline.cli.main import cli; cli.main(prog_name='gangline')"

    def completed(*words: str) -> list[str]:
        typed = {"COMP_WORDS": " ".join(("gangline", *words)), "COMP_CWORD": str(len(words))}
        asked = {**gang.plane.environment, "_GANGLINE_COMPLETE": "bash_complete", **typed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=asked, timeout=WAIT)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    wanted = {
        ("logs", "comp"): ["completed"],
        ("describe", "tfjob/c"): ["tfjob/completed"],
        ("get", "tfj"): ["tfjobs"],
        ("get", "tfjobs", "c"): ["completed"],
        ("get", "--namespace", "kube-p"): ["kube-public"],
        ("get", "--context", "gang"): ["gangline"],
    }
    # A shell does not wait for a server that is slow: then nothing is offered, and one presses the key again.
    end = time.monotonic() + WAIT
    for words, names in wanted.items():
        while not (found := completed(*words)):
            assert time.monotonic() < end, words
        assert found == names
    gang("delete", "completed", "--now")


def test_a_login_by_a_program_works_as_well(gang: Gangline) -> None:
    config = yaml.safe_load(gang.plane.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    (gang.folder / "credential.json").write_text(json.dumps(answer))
    plugin = {
        "apiVersion": answer["apiVersion"],
        "command": "cat",
        "args": [str(gang.folder / "credential.json")],
    }
    config["users"][0]["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
    (gang.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    done = gang("get", "namespaces", "-o", "name", "--kubeconfig", gang.folder / "kubeconfig")
    assert (done.code, done.err) == (0, "")
    assert "namespace/default" in done.out.splitlines()


def test_output_that_nobody_reads_to_its_end_is_no_error(gang: Gangline) -> None:
    with subprocess.Popen(
        gang.command("get", "namespaces", "-o", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=gang.plane.environment,
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == ""
        assert done.wait(WAIT) == 0


FORMS = (
    ("get", "pods"),
    ("get", "pods", "-o", "wide"),
    ("get", "nodes"),
    ("get", "namespaces", "--show-labels"),
    ("get", "svc,cm"),
    ("get", "pods", "-A", "--no-headers"),
    ("get", "pods", "-o", "name"),
    ("get", "pods", "-o", "json"),
    ("get", "tfjobs", "-o", "json"),
    ("get", "tfjob/shown", "-o", "yaml"),
    ("get", "tfjobs", "-o", "jsonpath={.items[*].metadata.name}"),
    ("get", "pods", "-o", "custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image,X:.spec.x"),
    ("get", "pods", "--sort-by", ".metadata.name", "-o", "name"),
    ("get", "pods", "-l", "training.kubeflow.org/replica-type=worker"),
    ("get", "pods", "--field-selector", "metadata.name=shown-ps-0"),
    ("get", "pod", "none"),
    ("get", "nonsense"),
)


def ageless(text: str) -> str:
    """Without ages, which may differ by the second between two looks, and the width they take."""
    return re.sub(r" +(?:AGE|(?:\d+[smhd])+)(?: +|$)", " AGE ", text, flags=re.MULTILINE)


def test_what_is_printed_equals_what_kubectl_prints(gang: Gangline) -> None:
    gang.submit("shown", ps=LASTING, worker=LASTING)
    gang.until("shown", "Running")
    for name in ("ps", "worker"):
        assert gang("wait", f"pod/shown-{name}-0", "--for", "condition=Ready", "--timeout", "50s").code == 0
        active = f"jsonpath={{.status.replicaStatuses.{'PS' if name == 'ps' else 'Worker'}.active}}=1"
        assert gang("wait", "shown", "--for", active, "--timeout", "50s").code == 0
    # Between the two looks nothing changes: pods of earlier tests are gone.
    gang.says(lambda done: done.out.split() == ["pod/shown-ps-0", "pod/shown-worker-0"], "get", "pods", "-o", "name")
    kubectl = Kubectl(gang.plane)
    for words in FORMS:
        theirs, ours = kubectl.run(*words), gang(*words)
        assert (ours.code, ours.err) == (theirs.returncode, theirs.stderr), words
        assert ageless(ours.out) == ageless(theirs.stdout), words
    gang("delete", "shown")

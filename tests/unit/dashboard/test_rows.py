"""What the dashboard shows of jobs, queues, logs, nodes, sweeps and diagnoses."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast, get_type_hints

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON, Key
from gangline.api.scheduler_views import PLACEMENT_SCHEME
from gangline.dashboard.rows.cluster import free_holes, node_row, placed_pod
from gangline.dashboard.rows.detail import object_yaml, shown_object
from gangline.dashboard.rows.job_row import job_row, progress_view
from gangline.dashboard.rows.log_page import AttemptLine, LogQuery, log_page, merged_attempts
from gangline.dashboard.rows.queues import places_in_line, queue_rows
from gangline.dashboard.rows.sweeps import TRIAL_ANNOTATION, sweep_views, trial_note
from gangline.dashboard.rows.trimmed import JobFields, JobSpecFields, PodFields, trimmed_event, trimmed_job, trimmed_pod
from gangline.dashboard.rows.why import evidence_view, next_step
from gangline.dashboard.web.jobs import JobFilter
from gangline.history.selection import SWEEP_LABEL
from gangline.summary.log_lines import TimedLine
from gangline.summary.objects import JOB_KINDS
from gangline.summary.pending_reasons import pod_details

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
PYTORCHJOBS = JOB_KINDS[1]
NODE, POD = PLACEMENT_SCHEME.find("nodes").model, PLACEMENT_SCHEME.find("pods").model


def job(name: str = "bert", *conditions: str, **more: Any) -> JSON:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x", "command": ["a"] * 50}]}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-18T11:00:00Z",
            "managedFields": [{"manager": "x"}],
            "annotations": {"note": "long " * 100},
        },
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}}
        },
        "status": {"conditions": [{"type": item, "status": "True", "message": item} for item in conditions], **more},
    }


def pod(name: str = "bert-worker-0", **status: Any) -> JSON:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "1",
            "labels": {"training.kubeflow.org/job-name": "bert", "other": "label"},
            "ownerReferences": [{"uid": "bert", "kind": "PyTorchJob", "name": "bert", "controller": True}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "pytorch", "image": "x", "env": [{"name": "A"}] * 20}]},
        "status": status,
    }


STATES = [
    job("bert"),
    job("bert", "Created"),
    job("bert", "Created", "Running", replicaStatuses={"Worker": {"active": 1}}, restarts=2),
    job(
        "bert",
        "Running",
        progress={"step": 5, "total": 10, "metrics": {"loss": 0.5}, "updated": "2026-11-18T11:59:00Z"},
    ),
    job("bert", "Failed", firstFailure={"replica": "worker-1", "exitCode": 137, "reason": "OOMKilled"}),
    job("bert", "Succeeded", completionTime="2026-11-18T11:30:00Z"),
]
WAITING = [{"name": "pytorch", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "image": "x"}]
PODS = [
    [],
    [pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]), pod("bert-worker-1", phase="Pending")],
    [pod(phase="Pending", containerStatuses=WAITING)],
    [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no nodes."}])],
    [pod(phase="Succeeded"), pod("bert-worker-1", phase="Failed", containerStatuses=[{"state": {"terminated": {}}}])],
]


@pytest.mark.parametrize("pods", PODS)
@pytest.mark.parametrize("body", STATES)
def test_a_trimmed_object_has_the_row_of_the_whole_one_and_is_small(body: JSON, pods: list[JSON]) -> None:
    events = [
        {
            "metadata": {"namespace": "team", "name": "e", "uid": "e", "resourceVersion": "1", "managedFields": []},
            "involvedObject": {"kind": "Pod", "name": "bert-worker-1"},
            "reason": "FailedMount",
            "message": "no disk",
        }
    ]
    whole = job_row(PYTORCHJOBS, body, NOW, pods=pod_details(body, pods, events))
    small, few = trimmed_job(body), list(map(trimmed_pod, pods))
    details = pod_details(small, few, list(map(trimmed_event, events)))
    assert job_row(PYTORCHJOBS, small, NOW, pods=details) == whole
    assert len(msgspec.json.encode(small)) < 700
    assert all(len(msgspec.json.encode(each)) < 600 for each in few)


def test_a_row_has_the_words_of_get() -> None:
    running = job_row(PYTORCHJOBS, STATES[2], NOW)
    assert (running.id, running.state, running.state_text) == (
        "team/pytorchjobs/bert",
        "Running",
        "Running, 1 of 2 ready",
    )
    assert (running.ready, running.replicas, running.restarts, running.queue) == (1, 2, 2, "")
    failed = job_row(PYTORCHJOBS, STATES[4], NOW)
    assert (failed.state, failed.reason, failed.progress) == ("Failed", "worker-1 OOMKilled", None)
    assert job_row(PYTORCHJOBS, STATES[5], NOW).ended_at == "2026-11-18T11:30:00Z"
    assert job_row(PYTORCHJOBS, STATES[0], NOW).reason == "no operator has seen it"


@pytest.mark.parametrize("value", [None, "x", [], {}, {"step": "1"}, {"step": True}, {"metrics": []}])
def test_odd_progress_is_no_error(value: Any) -> None:
    view = progress_view(value)
    assert view is None or (view.step, view.fraction, view.metrics) == (None, None, {})


def test_progress_has_its_share_and_the_time_that_is_left() -> None:
    view = progress_view({"step": 5, "total": 20, "estimatedRemainingSeconds": 30, "metrics": {"loss": 0.5, "x": "y"}})
    assert view is not None
    assert (view.fraction, view.eta_seconds, view.metrics) == (0.25, 30, {"loss": 0.5})


def group(name: str, created: str, phase: str = "Pending", queue: str = "") -> JSON:
    return {
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": created},
        "spec": {"queue": queue},
        "status": {"state": {"phase": phase}},
    }


def test_gangs_wait_in_the_order_of_their_creation() -> None:
    groups = [
        group("b", "2026-01-02"),
        group("a", "2026-01-01"),
        group("r", "2026-01-01", "Running"),
        group("q", "2026-01-03", queue="gpu"),
    ]
    assert places_in_line(groups) == {Key("team", "a"): 1, Key("team", "b"): 2, Key("team", "q"): 1}
    queue = {"metadata": {"name": "gpu"}, "spec": {"weight": 3}, "status": {"allocated": {"cpu": "2"}}}
    rows = {row.name: row for row in queue_rows([queue], groups)}
    assert (rows["default"].pending, rows["default"].running, rows["default"].weight) == (2, 1, 1)
    assert (rows["gpu"].pending, rows["gpu"].weight, rows["gpu"].held) == (1, 3, {"cpu": "2"})


def lines(replica: str, *texts: str, start: int = 0, attempt: int = 0) -> list[AttemptLine]:
    return [
        AttemptLine(TimedLine(f"2026-11-18T12:00:{start + number:02}.000000000Z", replica, text), attempt)
        for number, text in enumerate(texts)
    ]


def test_logs_are_merged_by_time_and_repeats_are_folded() -> None:
    merged = merged_attempts([lines("worker-0", "a", "b", "b"), lines("worker-1", "x", start=1)])
    page = log_page(merged, LogQuery(), [])
    assert [(line.replica, line.text, line.repeats) for line in page.lines] == [
        ("worker-0", "a", 1),
        ("worker-0", "b", 1),
        ("worker-1", "x", 1),
        ("worker-0", "b", 1),
    ]
    folded = log_page(lines("worker-0", "a", "a", "a"), LogQuery(), [])
    assert [(line.text, line.repeats) for line in folded.lines] == [("a", 3)]


def test_pages_of_logs_join_without_gap_or_repetition() -> None:
    everything = lines("worker-0", *(f"line {number // 2}" for number in range(40)))
    for fold in (True, False):
        texts: list[str] = []
        cursor, more = "", True
        while more:
            page = log_page(everything, LogQuery(limit=3, cursor=cursor, fold=fold), [])
            texts += [line.text for line in page.lines for _ in range(line.repeats)]
            cursor, more = page.cursor, page.more
        assert texts == [item.line.text for item in everything]


def test_logs_are_chosen_by_replica_time_and_text() -> None:
    everything = [*lines("worker-0", "Loss 1", "other"), *lines("ps-0", "loss 2")]
    query = LogQuery(replicas=("worker",), search="loss")
    assert [line.text for line in log_page(everything, query, []).lines] == ["Loss 1"]
    late = LogQuery(start="2026-11-18T12:00:01.000000000Z")
    assert [line.text for line in log_page(everything, late, []).lines] == ["other"]


def test_control_characters_do_not_reach_a_page() -> None:
    page = log_page(lines("w", "\x1b[31mred\x1b[0m\x07", "x" * 5000), LogQuery(), [])
    assert page.lines[0].text == "red"
    assert len(page.lines[1].text) == 4001


def test_a_node_has_what_its_pods_request() -> None:
    node = msgspec.convert(
        {
            "metadata": {"name": "n1"},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        NODE,
    )
    pods = [
        msgspec.convert(
            {
                "metadata": {
                    "name": f"p{number}",
                    "namespace": "team",
                    "labels": {"training.kubeflow.org/job-name": "bert"},
                },
                "spec": {
                    "nodeName": "n1",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}}}],
                },
                "status": {"phase": phase},
            },
            POD,
        )
        for number, phase in enumerate(("Running", "Succeeded"))
    ]
    placed = [placed_pod(each) for each in pods]
    assert [each.node for each in placed] == ["n1", ""]
    row = node_row(node, [each for each in placed if each.node])
    assert row.ready
    assert (row.resources["cpu"].used, row.resources["cpu"].free) == (0.5, 3.5)
    assert (row.resources["memory"].total_text, row.resources["nvidia.com/gpu"].free) == ("8Gi", 1)
    assert [(gang.job, gang.pods) for gang in row.gangs] == [("bert", 1)]
    assert free_holes([row])[0].free == {"cpu": "3500m", "memory": "8Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 100_000, '{"trial": 1e999}', '{"trial": "x"}', '{"parameters": [1]}', r'{"parameters": {"\ud800": 1}}'],
    ids=lambda text: text[:20],
)
def test_a_trial_without_a_readable_note_still_belongs_to_its_sweep(text: str) -> None:
    body = job("a", "Succeeded")
    assert trial_note(body) is None
    body["metadata"] |= {"labels": {SWEEP_LABEL: "s"}, "annotations": {TRIAL_ANNOTATION: text}}
    note = trial_note(body)
    assert note is not None
    (sweep,) = sweep_views([(note, job_row(PYTORCHJOBS, body, NOW))])
    assert [(trial.rank, trial.value) for trial in sweep.trials] == [(None, None)]


def test_evidence_of_a_diagnosis_leads_to_lines_and_objects() -> None:
    quoted = evidence_view("  worker-3│ CUDA out of memory")
    assert quoted.link is not None
    assert (quoted.link.kind, quoted.link.pod, quoted.link.line) == ("log", "worker-3", "CUDA out of memory")
    named = evidence_view("exit code 1 on node gpu-7")
    assert named.link is not None
    assert named.link.path == "node/gpu-7"
    assert evidence_view("nothing").link is None
    assert next_step("after the change: gangline restart bert").command == "gangline restart bert"
    assert next_step("ask your administrator").command is None


def test_yaml_of_a_job_has_no_bookkeeping_and_stays_one_document() -> None:
    body = job("bert")
    body["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "x": "</script>\n---\n",
    }
    text = object_yaml(body)
    assert "managedFields" not in text
    assert "last-applied" not in text
    assert shown_object(body)["metadata"]["annotations"] == {"x": "</script>\n---\n"}
    assert "\n---\n" not in text


def test_pages_of_jobs_are_filtered_and_newest_first() -> None:
    rows = [
        msgspec.structs.replace(
            job_row(PYTORCHJOBS, STATES[number % 6], NOW),
            id=f"team/pytorchjobs/j{number}",
            created_at=f"{(NOW - timedelta(minutes=number)).isoformat()}",
        )
        for number in range(12)
    ]
    page = JobFilter(state="running", limit=2, offset=1).page(rows)
    assert (page.total, [row.id for row in page.rows]) == (4, ["team/pytorchjobs/j3", "team/pytorchjobs/j8"])
    assert JobFilter(text="OOMkilled").page(rows).total == 2
    assert JobFilter(kind="TFJob").page(rows).total == 0


def test_the_fields_that_are_decoded_are_enough_for_every_kind() -> None:
    fields = get_type_hints(JobSpecFields)
    assert {kind.replicas for kind in TRAINING_KINDS} <= set(fields)
    for kind in TRAINING_KINDS:
        replicas = {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}}
        whole: JSON = {
            "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"l": "m"}, "managedFields": [{"a": 1}]},
            "spec": {kind.replicas: replicas, "runPolicy": {"suspend": True}},
            "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
        }
        decoded = msgspec.json.decode(msgspec.json.encode(whole), type=JobFields)
        assert trimmed_job(cast(JSON, decoded)) == trimmed_job(whole)
        assert "managedFields" not in decoded["metadata"]
    pod = {"metadata": {"name": "p", "ownerReferences": [{"uid": "c"}]}, "spec": {"nodeName": "n"}, "status": {}}
    assert trimmed_pod(cast(JSON, msgspec.convert(pod, PodFields))) == trimmed_pod(pod)

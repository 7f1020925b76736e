"""Every call of Kubeflow's own Python SDK, unmodified, with jobs of the six kinds, to their end.

Arguments: a namespace with no jobs in it; `team` or `alone`, how many members jobs have; and the module that
has the TrainingClient: `kubeflow.training`, or `gangline`, whose users change that one import.
"""

import importlib
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from kubeflow_jobs import KINDS, make, pods_of  # type: ignore[import-not-found]
from kubernetes import client, config  # type: ignore[import-not-found]

namespace, size, module = sys.argv[1:]
TrainingClient = importlib.import_module(module).TrainingClient
config.load_kube_config(os.environ["KUBECONFIG"])
core = client.CoreV1Api()
if namespace not in [found.metadata.name for found in core.list_namespace().items]:
    core.create_namespace({"metadata": {"name": namespace}})
sdk = TrainingClient(config_file=os.environ["KUBECONFIG"], namespace=namespace)

HELLO = ("python", "-c", "import os; print('hello from', os.environ['WHO'])")
SLOW = ("python", "-u", "-c", "import time\nfor step in range(4): print('step', step); time.sleep(0.5)")
BAD = ("python", "-c", "raise SystemExit(3)")
WAIT = {"wait_timeout": 90, "polling_interval": 1}


def fails(kind: type[Exception], call: Callable[[], object]) -> None:
    """The call must raise that."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.2)


def truths(job: Any) -> set[str]:
    return {found.type for found in job.status.conditions if found.status == "True"}


# From models, all six kinds


def members(kind: str) -> dict[str, int]:
    found: dict[str, int] = KINDS[kind].team if size == "team" else KINDS[kind].alone
    return found


def all_six_kinds() -> None:
    for kind, facts in KINDS.items():
        sdk.create_job(make(kind, kind.lower(), members(kind), facts.program if size == "team" else HELLO))
    for kind in KINDS:
        # With `verbose` the SDK looks for a job of the client's own kind, whatever it is asked.
        one_kind(kind, kind.lower(), TrainingClient(os.environ["KUBECONFIG"], None, None, namespace, kind))


def one_kind(kind: str, name: str, own: Any) -> None:
    states: list[Any] = []
    done = sdk.wait_for_job_conditions(name, job_kind=kind, callback=states.append, **WAIT)
    assert states
    assert truths(done) == {"Created", "Succeeded"}, done.status.conditions
    assert own.get_job_conditions(name)[0].type == "Created"
    assert sdk.is_job_created(name, job_kind=kind)
    assert own.is_job_succeeded(job=own.get_job(name))
    assert not own.is_job_running(name)
    assert not own.is_job_restarting(name)
    assert not own.is_job_failed(name)
    pods_and_logs(kind, name, own)

    sdk.update_job({"metadata": {"labels": {"team": "x"}}}, name, job_kind=kind)
    assert own.get_job(name).metadata.labels == {"team": "x"}
    assert [found.metadata.name for found in own.list_jobs()] == [name]
    sdk.delete_job(name, job_kind=kind)
    assert own.list_jobs() == []
    fails(RuntimeError, lambda: own.get_job(name))


def pods_and_logs(kind: str, name: str, own: Any) -> None:
    facts = KINDS[kind]
    leader = f"{name}-{facts.leader}"
    role, _, index = facts.leader.partition("-")
    chosen = {"replica_type": role, **({"replica_index": int(index)} if index else {})}
    found = set(own.get_job_pod_names(name))
    assert leader in found, found
    assert found <= pods_of(name, members(kind)), found
    assert [pod.metadata.name for pod in own.get_job_pods(name, is_master=True)] == [leader]
    assert own.get_job_pod_names(name, **chosen) == [leader]
    fails(ValueError, lambda: own.get_job_pods(name, replica_type="wurker"))

    said = facts.says if size == "team" else f"hello from {name}"
    logs, events = own.get_job_logs(name, verbose=True)
    assert list(logs) == [leader], logs
    assert said in logs[leader], logs
    # Events are written when pods have been made, a moment later.
    deadline = time.monotonic() + 60
    while f"{kind.lower()}/{name}" not in events and time.monotonic() < deadline:
        _, events = own.get_job_logs(name, verbose=True)
    assert events[f"{kind.lower()}/{name}"], events
    logs, events = own.get_job_logs(name, follow=True, **chosen)
    assert said in logs[leader], logs
    assert events == {}


# A job on its way, and one that fails


def on_its_way() -> None:
    sdk.create_job(make("PyTorchJob", "slow", {"Master": 1}, SLOW))
    fails(RuntimeError, lambda: sdk.create_job(make("PyTorchJob", "slow", {"Master": 1}, SLOW)))
    sdk.wait_for_job_conditions("slow", expected_conditions={"Running"}, wait_timeout=60, polling_interval=1)
    logs, _ = sdk.get_job_logs("slow", follow=True)
    assert [f"step {step}" in logs["slow-master-0"] for step in range(4)] == [True] * 4, logs
    sdk.wait_for_job_conditions("slow", **WAIT)


def failing() -> None:
    sdk.create_job(make("PyTorchJob", "bad", {"Master": 1}, BAD))
    fails(RuntimeError, lambda: sdk.wait_for_job_conditions("bad", **WAIT))
    assert sdk.is_job_failed("bad")
    assert "Failed" in truths(sdk.wait_for_job_conditions("bad", expected_conditions={"Failed"}, **WAIT))
    fails(ValueError, lambda: sdk.wait_for_job_conditions("bad", expected_conditions={"Done"}))
    # Without a program, and never to be one: it is suspended.
    waiting = make("PyTorchJob", "waiting", {"Master": 1}, HELLO)
    waiting.spec.run_policy.suspend = True
    sdk.create_job(waiting)
    fails(
        TimeoutError,
        lambda: sdk.wait_for_job_conditions("waiting", wait_timeout=1, polling_interval=1),
    )
    sdk.update_job({"spec": {"runPolicy": {"suspend": False}}}, "waiting")
    sdk.wait_for_job_conditions("waiting", **WAIT)
    assert sorted(found.metadata.name for found in sdk.list_jobs()) == ["bad", "slow", "waiting"]
    for name in ("bad", "slow", "waiting"):
        sdk.delete_job(name, delete_options=client.V1DeleteOptions(propagation_policy="Background"))


def restarting() -> None:
    again = make("PyTorchJob", "again", {"Master": 1}, ("python", "-c", "raise SystemExit(130)"))
    again.spec.pytorch_replica_specs["Master"].restart_policy = "ExitCode"
    sdk.create_job(again)
    found = sdk.wait_for_job_conditions(
        "again", expected_conditions={"Restarting"}, wait_timeout=60, polling_interval=0.1
    )
    assert sdk.is_job_restarting(job=found)
    sdk.delete_job("again")


# From functions and images


def train_func(parameters: dict[str, float]) -> None:
    import os

    print("learns at", parameters["rate"], "as", os.environ["WHO"])


def from_functions() -> None:
    made: dict[str, Any] = {"train_func": train_func, "parameters": {"rate": 0.5}, "base_image": "none"}
    sdk.create_job(
        name="function",
        num_workers=1,
        env_vars={"WHO": "torch"},
        resources_per_worker={"cpu": "0.1", "memory": "512Mi"},
        # It is there already, so no index is asked.
        packages_to_install=["pip"],
        **made,
    )
    chiefs = {"num_chief_replicas": 1, "num_ps_replicas": 1} if size == "team" else {}
    who = [{"name": "WHO", "value": "flow"}]
    sdk.create_job(name="flow", job_kind="TFJob", num_workers=1, env_vars=who, **chiefs, **made)
    sdk.wait_for_job_conditions("function", **WAIT)
    assert "learns at 0.5 as torch" in sdk.get_job_logs("function")[0]["function-master-0"]
    done = sdk.wait_for_job_conditions("flow", job_kind="TFJob", **WAIT)
    leader = "flow-chief-0" if chiefs else "flow-worker-0"
    assert "learns at 0.5 as flow" in sdk.get_job_logs("flow", job_kind="TFJob")[0][leader]
    assert sorted(done.spec.tf_replica_specs) == (["Chief", "PS", "Worker"] if chiefs else ["Worker"])
    sdk.create_job(name="image", base_image="none", num_workers=3, num_procs_per_worker=2)
    found = sdk.get_job("image")
    assert found.spec.pytorch_replica_specs["Worker"].replicas == 2
    assert found.spec.nproc_per_node == "2"
    fails(ValueError, lambda: sdk.create_job(name="image", job_kind="MPIJob", base_image="none"))
    for name in ("function", "image"):
        sdk.delete_job(name)
    sdk.delete_job("flow", job_kind="TFJob")


# Fine-tuning. It wants two large libraries for the names of a few classes.


def stand_ins() -> None:
    names = "SequenceClassification TokenClassification QuestionAnswering CausalLM MaskedLM ImageClassification"
    transformers: Any = types.ModuleType("transformers")
    for name in names.split():
        setattr(transformers, f"AutoModelFor{name}", type(f"AutoModelFor{name}", (), {}))
    transformers.TrainingArguments = type("TrainingArguments", (), {"to_dict": lambda self: {"epochs": 1}})
    peft: Any = types.ModuleType("peft")
    peft.LoraConfig = type("LoraConfig", (), {})
    sys.modules.update(transformers=transformers, peft=peft)


def fine_tuning() -> None:
    stand_ins()
    from kubeflow.storage_initializer import hugging_face  # type: ignore[import-not-found]

    model = hugging_face.HuggingFaceModelParams("hf://m", sys.modules["transformers"].AutoModelForCausalLM)
    sdk.train(
        name="tuned",
        num_workers=2,
        model_provider_parameters=model,
        dataset_provider_parameters=hugging_face.HuggingFaceDatasetParams("d"),
        trainer_parameters=hugging_face.HuggingFaceTrainerParams(),
        storage_config={"size": "1Gi", "access_modes": ["ReadWriteOnce"]},
    )
    claim = core.read_namespaced_persistent_volume_claim("tuned", namespace)
    assert claim.spec.resources.requests == {"storage": "1Gi"}
    eventually(lambda: len(sdk.get_job_pods("tuned")) == 2)
    assert sdk.get_job("tuned").spec.pytorch_replica_specs["Worker"].replicas == 1
    sdk.delete_job("tuned")


# Ways to a server


def other_ways_in() -> None:
    _, current = config.list_kube_config_contexts(os.environ["KUBECONFIG"])
    ways = [
        TrainingClient(context=current["name"]),
        TrainingClient(client_configuration=client.Configuration.get_default_copy()),
    ]
    for way in ways:
        assert [found.metadata.name for found in way.list_jobs(namespace)] == []
    fails(ValueError, lambda: TrainingClient(job_kind="Job"))


all_six_kinds()
on_its_way()
failing()
restarting()
from_functions()
fine_tuning()
other_ways_in()

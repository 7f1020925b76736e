from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gangline.api.core import Container
from gangline.api.kubeflow.kinds import MPIJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.api.meta import JSON
from gangline.frameworks.mpi import Mpi
from gangline.jobs.defaults import problems
from gangline.jobs.framework import (
    Addresses,
    Companion,
    ConditionText,
    EnvTarget,
    Framework,
    NeedsCompanions,
    PodEdits,
    ResetsReplicaCounts,
)
from gangline.jobs.pods.replicas import Member
from support.builders.teams import env_pairs, make_framework_job, make_gang, trainer_template

CLUSTER, LOCAL, AGENT = Mpi(), Mpi(agent="python -m agent"), Mpi(agent_image="gangline:1")
MPI: Framework[MPIJob] = CLUSTER
PI: Mapping[str, int] = {"Launcher": 1, "Worker": 2}
KUBECTL = {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"}
CONFIG = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}


def pi(replicas: Mapping[str, int | JSON | None] = PI, **spec: Any) -> MPIJob:
    return make_framework_job(MPI, replicas, "pi", **{"slotsPerWorker": 2, **spec})


def gpus(name: str = "nvidia.com/gpu") -> JSON:
    return {"template": trainer_template("mpi", resources={"limits": {name: 1}})}


def wired(job: MPIJob, kind: str, index: int = 0, framework: Mpi = CLUSTER) -> PodEdits:
    """The edits of a pod. No addresses are needed: pods are reached through the API server."""
    return framework.wiring(job, Member(kind, index), Addresses())


def companions(job: MPIJob, framework: Mpi = CLUSTER, **phases: str) -> dict[str, Companion]:
    return {companion.resource: companion for companion in framework.companions(job, make_gang(MPI, job, **phases))}


def files(job: MPIJob, framework: Mpi = CLUSTER, **phases: str) -> dict[str, str]:
    data: dict[str, str] = companions(job, framework, **phases)["configmaps"].body["data"]
    return data


# Pods


def test_the_launcher_is_told_its_hosts_and_how_to_reach_them() -> None:
    edits = wired(pi(), "Launcher")
    assert env_pairs(edits) == [
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("NVIDIA_VISIBLE_DEVICES", None),
        ("NVIDIA_DRIVER_CAPABILITIES", None),
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"),
    ]
    assert edits.into is EnvTarget.FIRST
    assert edits.labels == {JOB_ROLE: "master"}
    assert edits.service_account == "pi-launcher"
    assert edits.command == ()


def test_the_launcher_is_brought_a_kubectl() -> None:
    edits = wired(pi(), "Launcher")
    assert edits.mounts == (KUBECTL, CONFIG)
    assert edits.volumes == (
        {"name": "mpi-job-kubectl", "emptyDir": {}},
        {
            "name": "mpi-job-config",
            "configMap": {
                "name": "pi-config",
                "items": [
                    {"key": "kubexec.sh", "path": "kubexec.sh", "mode": 365},
                    {"key": "hostfile", "path": "hostfile", "mode": 292},
                    {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 365},
                ],
            },
        },
    )
    amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    assert edits.init_containers == (
        {
            "name": "kubectl-delivery",
            "image": "kubeflow/kubectl-delivery:latest",
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": "ml"}],
            "volumeMounts": [KUBECTL, CONFIG],
            "resources": {"limits": amounts, "requests": amounts},
        },
    )


def test_another_image_may_bring_it() -> None:
    (container,) = wired(pi(), "Launcher", framework=Mpi("mine:1")).init_containers
    assert container["image"] == "mine:1"


def test_a_worker_sleeps_until_it_is_asked() -> None:
    assert wired(pi(), "Worker", 1) == PodEdits(
        mounts=(CONFIG,),
        volumes=(
            {
                "name": "mpi-job-config",
                "configMap": {
                    "name": "pi-config",
                    "items": [{"key": "kubexec.sh", "path": "kubexec.sh", "mode": 365}],
                },
            },
        ),
        command=("sleep",),
        args=("365d",),
    )


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"]),
        (["I_MPI_HYDRA_BOOTSTRAP"], ["I_MPI_HYDRA_BOOTSTRAP_EXEC"]),
        (["I_MPI_HYDRA_BOOTSTRAP_EXEC"], ["I_MPI_HYDRA_BOOTSTRAP"]),
        (["I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"], []),
    ],
)
def test_what_the_user_says_to_intel_mpi_stays(given: list[str], added: list[str]) -> None:
    variables = [{"name": name, "value": "mine"} for name in given]
    job = pi({"Launcher": {"template": trainer_template("mpi", env=variables)}, "Worker": 2})
    assert [name for name, _ in env_pairs(wired(job, "Launcher")) if name.startswith("I_MPI")] == added


@pytest.mark.parametrize(("resource", "works"), [("nvidia.com/gpu", True), ("vendor-domain/gpu", True), ("cpu", False)])
def test_a_launcher_with_gpus_computes_too(resource: str, works: bool) -> None:
    job = pi({"Launcher": gpus(resource), "Worker": 2})
    hidden = "NVIDIA_VISIBLE_DEVICES" in dict(env_pairs(wired(job, "Launcher")))
    assert hidden is not works
    found = files(job, worker_0="Running")
    if works:
        assert found["hostfile"] == "pi-launcher slots=2\npi-worker-0 slots=2\npi-worker-1 slots=2\n"
        assert found["discover_hosts.sh"] == "#!/bin/sh\necho pi-launcher:2\n\necho pi-worker-0:2"
    else:
        assert found["hostfile"] == "pi-worker-0 slots=2\npi-worker-1 slots=2\n"
        assert found["discover_hosts.sh"] == "#!/bin/sh\necho pi-worker-0:2"


# Companions


def test_the_launcher_may_run_commands_in_its_workers_and_nowhere_else() -> None:
    objects = companions(pi())
    assert tuple(objects) == (
        "serviceaccounts",
        "configmaps",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
    )
    assert set(objects) == set(CLUSTER.resources)
    assert isinstance(CLUSTER, NeedsCompanions)
    account, role, binding = (objects[name] for name in (*CLUSTER.resources[1:],))
    assert (account.name, account.parts, account.anyones) == ("pi-launcher", (), True)
    assert (role.name, role.parts, role.anyones) == ("pi-launcher", ("rules",), False)
    assert role.body["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": ["pi-worker-0", "pi-worker-1"],
            "verbs": ["create"],
        },
    ]
    assert (binding.name, binding.parts) == ("pi-launcher", ("subjects",))
    assert binding.body["subjects"] == [{"kind": "ServiceAccount", "name": "pi-launcher", "namespace": "ml"}]
    assert binding.body["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "pi-launcher",
    }


def test_companions_are_labelled_and_say_what_they_are() -> None:
    bodies = [companion.body for companion in companions(pi()).values()]
    assert [(body["apiVersion"], body["kind"]) for body in bodies] == [
        ("v1", "ServiceAccount"),
        ("v1", "ConfigMap"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ]
    assert [body["metadata"] for body in bodies] == [
        {"name": name, "labels": {"app": "pi"}} for name in ("pi-launcher", "pi-config", "pi-launcher", "pi-launcher")
    ]


def test_a_launcher_without_workers_may_run_commands_nowhere() -> None:
    objects = companions(pi({"Launcher": 1}))
    assert [rule["resources"] for rule in objects["roles.rbac.authorization.k8s.io"].body["rules"]] == [["pods"]]


def test_the_users_own_service_account_is_bound() -> None:
    own = trainer_template("mpi")
    own["spec"]["serviceAccountName"] = "mine"
    objects = companions(pi({"Launcher": {"template": own}, "Worker": 1}))
    assert objects["serviceaccounts"].name == "mine"
    assert objects["rolebindings.rbac.authorization.k8s.io"].body["subjects"][0]["name"] == "mine"


def test_hosts_are_those_that_will_be_and_discovery_those_that_are() -> None:
    job = make_framework_job(MPI, {"Launcher": 1, "Worker": 12}, "m")
    at_first = files(job)
    assert at_first["hostfile"].startswith("m-worker-0 slots=1\nm-worker-1 slots=1\n")
    assert at_first["discover_hosts.sh"] == "#!/bin/sh"
    later = files(job, worker_2="Running", worker_10="Running", worker_1="Pending", worker_3="-Running")
    assert later["discover_hosts.sh"] == "#!/bin/sh\necho m-worker-10:1\necho m-worker-2:1"
    assert later["hostfile"] == at_first["hostfile"]


@pytest.mark.parametrize(("main", "chosen"), [("", ""), ("train", " --container train")])
def test_commands_are_run_by_kubectl(main: str, chosen: str) -> None:
    assert files(pi(mainContainer=main))["kubexec.sh"] == (
        f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${{POD_NAME}}{chosen} -- /bin/sh -c "$*"'
    )


def test_without_an_image_no_kubectl_is_brought() -> None:
    assert wired(pi(), "Launcher", framework=Mpi(delivery_image="")).init_containers == ()


# With the agent of gangline's image


def test_the_launcher_is_brought_the_agent_of_gangline() -> None:
    edits = wired(pi(), "Launcher", framework=AGENT)
    amounts = {"cpu": "100m", "memory": "64Mi"}
    assert edits.init_containers == (
        {
            "name": "gangline-agent",
            "image": "gangline:1",
            "imagePullPolicy": "IfNotPresent",
            "command": [
                "/usr/local/bin/gangline-agent",
                "install",
                "--hostfile",
                "/etc/mpi/hostfile",
                "--launcher",
                "pi-launcher",
                "/opt/kube",
            ],
            "volumeMounts": [KUBECTL, CONFIG],
            "resources": {"limits": amounts, "requests": amounts},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    )
    assert edits.mounts == (KUBECTL, CONFIG)
    assert edits.volumes[0] == {"name": "mpi-job-kubectl", "emptyDir": {}}
    assert edits.service_account == "pi-launcher"


def test_no_helper_image_is_pulled() -> None:
    for kind in ("Launcher", "Worker"):
        images = [container["image"] for container in wired(pi(), kind, framework=AGENT).init_containers]
        assert set(images) <= {"gangline:1"}
    assert wired(pi(), "Worker", framework=AGENT) == wired(pi(), "Worker")


def test_a_launcher_of_root_keeps_its_user() -> None:
    template = trainer_template("mpi")
    template["spec"]["securityContext"] = {"runAsUser": 0}
    (container,) = wired(pi({"Launcher": {"template": template}}), "Launcher", framework=AGENT).init_containers
    assert "runAsNonRoot" not in container["securityContext"]


def test_commands_are_run_by_the_agent() -> None:
    script = files(pi(mainContainer="train"), AGENT)["kubexec.sh"]
    assert script.endswith('\nexec /opt/kube/gangline-agent exec --container train "$POD_NAME" "$@"\n')


def test_with_the_delivered_agent_daemons_are_started_by_the_launcher_alone() -> None:
    env = env_pairs(wired(pi(), "Launcher", framework=AGENT))
    assert env[:10] == env_pairs(wired(pi(), "Launcher", framework=LOCAL))
    assert env[10:] == [("OMPI_MCA_plm_rsh_no_tree_spawn", "1"), ("PRTE_MCA_plm_ssh_no_tree_spawn", "1")]


def test_with_the_agent_a_launcher_sees_its_workers_alone() -> None:
    objects = companions(pi(), AGENT)
    rules = objects["roles.rbac.authorization.k8s.io"].body["rules"]
    workers = ["pi-worker-0", "pi-worker-1"]
    assert rules == [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": workers, "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers, "verbs": ["create", "get"]},
    ]
    # The Kubeflow operator, which would take the right to start a WebSocket, does not know these names.
    binding = objects["rolebindings.rbac.authorization.k8s.io"]
    assert objects["roles.rbac.authorization.k8s.io"].name == binding.name == "pi-launcher-agent"
    assert binding.body["roleRef"]["name"] == "pi-launcher-agent"
    assert binding.body["subjects"][0]["name"] == "pi-launcher"
    (alone,) = companions(pi({"Launcher": 1}), AGENT)["roles.rbac.authorization.k8s.io"].body["rules"]
    assert (alone["resources"], alone["resourceNames"]) == (["pods"], ["pi-launcher"])


@pytest.mark.parametrize(
    ("framework", "init", "twin"),
    [(AGENT, "kubectl-delivery", CLUSTER), (AGENT, "gangline-agent", AGENT), (CLUSTER, "gangline-agent", AGENT)],
)
def test_a_launcher_that_exists_keeps_its_way_to_its_workers(framework: Mpi, init: str, twin: Mpi) -> None:
    job = pi()
    gang = make_gang(MPI, job, launcher="Running", worker_0="Running")
    (seat, pod), *_ = gang.of_type("Launcher")
    spec = msgspec.structs.replace(pod.spec, init_containers=(Container(name=init),))
    gang = msgspec.structs.replace(gang, pods={**gang.pods, seat: msgspec.structs.replace(pod, spec=spec)})
    expected = twin.companions(job, make_gang(MPI, job, worker_0="Running"))
    assert framework.companions(job, gang) == expected


def test_with_an_account_of_the_administrator_no_rights_are_granted() -> None:
    framework = Mpi(agent_image="gangline:1", launcher_account="mpi")
    assert framework.resources == ("configmaps",)
    assert list(companions(pi(), framework)) == ["configmaps"]
    assert wired(pi(), "Launcher", framework=framework).service_account == "mpi"


# On one machine


def test_with_an_agent_no_kubectl_is_brought() -> None:
    edits = wired(pi(), "Launcher", framework=LOCAL)
    assert edits.init_containers == ()
    assert edits.mounts == (CONFIG,)
    (volume,) = edits.volumes
    assert [item["path"] for item in volume["configMap"]["items"]] == [
        "kubexec.sh",
        "hostfile",
        "discover_hosts.sh",
        "hydra-hostfile",
    ]


def test_with_an_agent_open_mpi_5_and_mpich_are_told_too() -> None:
    env = env_pairs(wired(pi(), "Launcher", framework=LOCAL))
    assert env[:6] == env_pairs(wired(pi(), "Launcher"))
    assert env[6:] == [
        ("PRTE_MCA_plm_ssh_agent", "/etc/mpi/kubexec.sh"),
        ("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"),
        ("HYDRA_LAUNCHER_EXEC", "/etc/mpi/kubexec.sh"),
        ("HYDRA_HOST_FILE", "/etc/mpi/hydra-hostfile"),
    ]
    assert files(pi(), LOCAL)["hydra-hostfile"] == "pi-worker-0:2\npi-worker-1:2\n"
    assert files(pi(), LOCAL)["hostfile"] == files(pi())["hostfile"]


def test_with_an_agent_workers_are_as_they_are_in_a_cluster() -> None:
    assert wired(pi(), "Worker", framework=LOCAL) == wired(pi(), "Worker")


def test_with_an_agent_the_users_own_settings_stay() -> None:
    own = trainer_template("mpi", env=[{"name": "HYDRA_LAUNCHER_EXEC", "value": "mine"}])
    job = pi({"Launcher": {"template": own}, "Worker": 2})
    assert "HYDRA_LAUNCHER_EXEC" not in dict(env_pairs(wired(job, "Launcher", framework=LOCAL)))


# Verdict


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ({"worker_0": "Running", "worker_1": "Running"}, ""),
        ({"launcher": "Pending"}, ""),
        ({"launcher": "Running"}, "MPIJob pi is running."),
        ({"launcher": "-Running"}, ""),
        ({"launcher": "Succeeded", "worker_0": "Failed"}, "MPIJob pi is successfully completed."),
        ({"launcher": "Failed", "worker_0": "Succeeded"}, ""),
    ],
)
def test_the_launcher_decides(phases: dict[str, str], told: str) -> None:
    job = pi()
    assert MPI.verdict(job, make_gang(MPI, job, **phases)).message == told


def test_failure_has_the_reason_that_clients_know() -> None:
    message = "MPIJob pi is failed because 1 Launcher replica(s) failed."
    assert MPI.failure(pi(), "Launcher", 1) == ConditionText("MPIJobMPIJobFailed", message)
    assert not MPI.tolerates(pi(), "Worker")


def test_the_workers_of_an_ended_launcher_are_counted_no_more() -> None:
    assert isinstance(CLUSTER, ResetsReplicaCounts)
    assert tuple(CLUSTER.reset_types(pi(), make_gang(MPI, pi(), launcher="Succeeded"))) == ("Worker",)
    assert tuple(CLUSTER.reset_types(pi(), make_gang(MPI, pi(), launcher="Running", worker_0="Failed"))) == ()


def test_what_an_ended_launcher_saw_last_is_left_to_be_read() -> None:
    assert CLUSTER.companions(pi(), make_gang(MPI, pi(), launcher="Failed")) == ()


# Defaults and validation


def test_one_launcher_no_worker_and_one_slot_unless_the_job_says_otherwise() -> None:
    job = make_framework_job(MPI, {"Launcher": None, "Worker": None})
    filled = {kind: (spec.replicas, spec.restart_policy) for kind, spec in MPI.replicas(job).items()}
    assert filled == {"Launcher": (1, "Never"), "Worker": (0, "Never")}
    assert job.spec.slots_per_worker == 1


@pytest.mark.parametrize(
    ("policy", "twin", "agreed"),
    [
        (None, None, "None"),
        ("All", None, "All"),
        (None, "Running", "Running"),
        ("All", "Running", "All"),
    ],
)
def test_two_clean_up_policies_become_one(policy: str | None, twin: str | None, agreed: str) -> None:
    spec: dict[str, Any] = {"cleanPodPolicy": twin} if twin else {}
    if policy:
        spec["runPolicy"] = {"cleanPodPolicy": policy}
    job = pi(**spec)
    assert MPI.run_policy(job).clean_pod_policy == job.spec.clean_pod_policy == agreed


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        ({"Launcher": None}, []),
        ({"Worker": 2}, ["spec.mpiReplicaSpecs: has no Launcher; write one, with replicas: 1"]),
        ({"Launcher": 2}, ["spec.mpiReplicaSpecs.Launcher.replicas: is 2; write 1"]),
    ],
)
def test_there_is_one_launcher(replicas: dict[str, int | None], told: list[str]) -> None:
    assert [str(problem) for problem in problems(MPI, pi(replicas))] == told

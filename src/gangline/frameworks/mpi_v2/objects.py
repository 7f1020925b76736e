"""The objects of an MPIJob of v2beta1 as mpi-operator makes them: pods, launcher Job, service, and host lists."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from gangline.api.kubeflow.kinds import DEFAULT_SSH_PATH, MpiImplementation, MPIJobV2
from gangline.api.kubeflow.training import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE
from gangline.api.meta import JSON
from gangline.frameworks.replica_counts import WORKER
from gangline.jobs.framework import variables
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS, GangPodEdits
from gangline.jobs.plan.render import apply_gang_edits
from gangline.jobs.pods.labels import owner_reference
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Member, member_name

LAUNCHER = UNINDEXED_TYPE
OPERATOR_LABEL = "mpi-operator"
"""The value of label operator-name, by which clients of mpi-operator select pods."""
CONFIG_FOLDER, CONFIG_VOLUME = "/etc/mpi", "mpi-job-config"
HOSTFILE, DISCOVERY_SCRIPT = "hostfile", "discover_hosts.sh"
SSH_VOLUME = "ssh-auth"
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"
DEFAULT_DOMAIN = "cluster.local"
SSH_ARGUMENTS = "-o ConnectionAttempts=10"
_KEY_FILES = ((PRIVATE_KEY, "id_rsa"), (PUBLIC_KEY, "id_rsa.pub"), (PUBLIC_KEY, "authorized_keys"))
_HOSTFILE_PATH = f"{CONFIG_FOLDER}/{HOSTFILE}"
_SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")
_READABLE_MODE, _EXECUTABLE_MODE, _KEY_MODE = 0o444, 0o555, 0o600


def launcher_name(job: MPIJobV2) -> str:
    """The name of the launcher's Job, and its host name."""
    return f"{job.metadata.name}-launcher"


def secret_name(job: MPIJobV2) -> str:
    return f"{job.metadata.name}-ssh"


def app_labels(job: MPIJobV2) -> dict[str, str]:
    """The labels of the objects beside the pods."""
    return {"app": job.metadata.name}


def worker_count(job: MPIJobV2) -> int:
    spec = job.spec.mpi_replica_specs.get(WORKER)
    return (spec.replicas or 0) if spec is not None else 0


def host_name(job: MPIJobV2, pod: str, domain: str = "") -> str:
    """The name of a pod in the job's service. `domain` is the cluster's, if full names are wanted."""
    return f"{pod}.{job.metadata.name}.{job.metadata.namespace}.svc" + (f".{domain}" if domain else "")


def hosts(job: MPIJobV2) -> list[str]:
    """The pods in which ranks run, whether they run yet or not."""
    workers = [member_name(job.metadata.name, Member(WORKER, index)) for index in range(worker_count(job))]
    return [launcher_name(job), *workers] if job.spec.run_launcher_as_worker else workers


def hostfile(job: MPIJobV2, names: Iterable[str]) -> str:
    """The host file in the form of the job's MPI."""
    slots = 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
    form = "{} slots={}\n" if job.spec.mpi_implementation == MpiImplementation.OPEN_MPI else "{}:{}\n"
    return "".join(form.format(name, slots) for name in names)


def discovery_script(names: Iterable[str]) -> str:
    """A script that prints the hosts that run now, for elastic Horovod."""
    return "#!/bin/sh\n" + "".join(f"echo {name}\n" for name in names)


def config_map(job: MPIJobV2, running: Iterable[str], domain: str) -> JSON:
    """The host lists: of all pods in which ranks run, and of those workers that run now."""
    now = [*([launcher_name(job)] if job.spec.run_launcher_as_worker else []), *sorted(running)]
    files = {
        HOSTFILE: hostfile(job, [host_name(job, pod, domain) for pod in hosts(job)]),
        DISCOVERY_SCRIPT: discovery_script(host_name(job, pod, domain) for pod in now),
    }
    return {"metadata": {"name": config_map_name(job), "labels": app_labels(job)}, "data": files}


def config_map_name(job: MPIJobV2) -> str:
    return f"{job.metadata.name}-config"


def service(job: MPIJobV2) -> JSON:
    """The headless service in which launcher and workers have their host names."""
    return {
        # mpi-operator sets no more than `app`. By the other labels the operator's cache finds it.
        "metadata": {"name": job.metadata.name, "labels": {**app_labels(job), **_selector(job)}},
        "spec": {
            "clusterIP": "None",
            "selector": _selector(job),
            # Else a launcher that is a worker, too, could not be reached before it is ready, and would never be.
            "publishNotReadyAddresses": job.spec.run_launcher_as_worker,
        },
    }


def launcher_job(job: MPIJobV2, edits: GangPodEdits = NO_GANG_EDITS) -> JSON:
    """The launcher's Job. Kubernetes restarts it, ends it at its deadline, and removes it after its time to live."""
    policy = job.spec.run_policy
    limits = {
        "ttlSecondsAfterFinished": policy.ttl_seconds_after_finished,
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
    }
    return {
        "metadata": {"name": launcher_name(job), "labels": app_labels(job)},
        "spec": {
            **{name: value for name, value in limits.items() if value is not None},
            **({"suspend": True} if policy.suspend else {}),
            "template": launcher_template(job, edits),
        },
    }


def launcher_template(job: MPIJobV2, edits: GangPodEdits = NO_GANG_EDITS) -> JSON:
    """The template of the launcher's pods."""
    spec = job.spec.mpi_replica_specs[LAUNCHER]
    index = {REPLICA_INDEX: "0"} if job.spec.run_launcher_as_worker else {}
    body = _pod_spec(job, spec.template, launcher_name(job))
    container = body["containers"][0]
    _extend(container, "env", launcher_variables(job))
    _add_ssh_keys(job, body)
    _extend(body, "volumes", [_config_volume(job)])
    _extend(container, "volumeMounts", [{"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER}])
    body["restartPolicy"] = spec.restart_policy
    apply_gang_edits(body, edits)
    return {"metadata": _pod_metadata(job, spec.template, LAUNCHER, index, edits), "spec": body}


def worker_pod(job: MPIJobV2, index: int, domain: str = "", edits: GangPodEdits = NO_GANG_EDITS) -> JSON:
    """The pod of one worker, which runs sshd unless its template says otherwise."""
    spec, name = job.spec.mpi_replica_specs[WORKER], member_name(job.metadata.name, Member(WORKER, index))
    body = _pod_spec(job, spec.template, name)
    # Intel MPI and MPICH reach the launcher by its bare host name.
    search = f"{job.metadata.name}.{job.metadata.namespace}.svc.{domain or DEFAULT_DOMAIN}"
    dns = body.get("dnsConfig") or {}
    body["dnsConfig"] = {**dns, "searches": [*(dns.get("searches") or []), search]}
    container = body["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["command"] = ["/usr/sbin/sshd", "-De"]
    _extend(container, "env", variables(K_MPI_JOB_ROLE="worker"))
    _add_ssh_keys(job, body)
    body["restartPolicy"] = spec.restart_policy
    apply_gang_edits(body, edits)
    # Indices are unique in the job: a launcher that is a worker, too, has the first.
    index_label = {REPLICA_INDEX: str(index + job.spec.run_launcher_as_worker)}
    metadata = _pod_metadata(job, spec.template, WORKER, index_label, edits)
    return {
        "metadata": {
            **metadata,
            "name": name,
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": body,
    }


def launcher_variables(job: MPIJobV2) -> tuple[JSON, ...]:
    """The variables of the launcher: where the host file is, how to call ssh, and how many ranks go to a host."""
    slots = str(1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker)
    by_implementation: Mapping[str, Mapping[str, str]] = {
        MpiImplementation.OPEN_MPI: {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": _HOSTFILE_PATH,
            "OMPI_MCA_plm_rsh_args": SSH_ARGUMENTS,
            "OMPI_MCA_orte_set_default_slots": slots,
        },
        MpiImplementation.INTEL: {
            "I_MPI_HYDRA_HOST_FILE": _HOSTFILE_PATH,
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_ARGUMENTS,
            "I_MPI_PERHOST": slots,
        },
        MpiImplementation.MPICH: {
            "HYDRA_HOST_FILE": _HOSTFILE_PATH,
            "HYDRA_LAUNCH_EXTRA_ARGS": SSH_ARGUMENTS,
        },
    }
    # Empty: else NVIDIA's runtime gives a launcher without GPUs all those of its node.
    no_gpus = ({"name": "NVIDIA_VISIBLE_DEVICES"}, {"name": "NVIDIA_DRIVER_CAPABILITIES"})
    return (
        *variables(K_MPI_JOB_ROLE="launcher"),
        *variables(**by_implementation.get(job.spec.mpi_implementation, {})),
        *(() if job.spec.run_launcher_as_worker else no_gpus),
    )


def scheduling_changes(current: JSON, desired: JSON) -> JSON:
    """The part of a template that may change while the launcher's Job is suspended, as a patch of `current`.

    A queue manager writes there where the pods shall run, before it resumes the job.
    """
    metadata = {
        name: dict(wanted)
        for name in ("labels", "annotations")
        if not (wanted := desired["metadata"].get(name) or {}).items()
        <= (current.get("metadata", {}).get(name) or {}).items()
    }
    spec = {
        name: _replacement(current["spec"].get(name), desired["spec"].get(name))
        for name in _SCHEDULING_FIELDS
        if (desired["spec"].get(name) or None) != (current["spec"].get(name) or None)
    }
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def _replacement(current: Any, desired: Any) -> Any:
    """What a merge patch must say to turn one value into the other: it removes a key only if that is null."""
    if isinstance(current, dict) and isinstance(desired, dict):
        return {**dict.fromkeys(current), **desired}
    return desired or None


def _selector(job: MPIJobV2) -> dict[str, str]:
    return {OPERATOR_NAME: OPERATOR_LABEL, JOB_NAME: job.metadata.name}


def _pod_metadata(job: MPIJobV2, template: JSON, kind: str, index: Mapping[str, str], edits: GangPodEdits) -> JSON:
    metadata = template.get("metadata") or {}
    role = kind.lower()
    labels = {
        **(metadata.get("labels") or {}),
        **_selector(job),
        JOB_ROLE: role,
        # In addition to mpi-operator's labels, so that all tools find replicas as in other kinds.
        REPLICA_TYPE: role,
        **index,
        **edits.labels,
    }
    annotations = {**edits.default_annotations, **(metadata.get("annotations") or {}), **edits.annotations}
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def _pod_spec(job: MPIJobV2, template: JSON, host: str) -> dict[str, Any]:
    body = deepcopy(template.get("spec") or {})
    body["hostname"], body["subdomain"] = host, job.metadata.name
    if body.get("hostNetwork"):
        body["dnsPolicy"] = "ClusterFirstWithHostNet"
    return body


def _add_ssh_keys(job: MPIJobV2, body: JSON) -> None:
    path = job.spec.ssh_auth_mount_path
    items = [{"key": key, "path": file} for key, file in _KEY_FILES]
    # sshd of root takes no keys that others may read; for another user the image knows better.
    mode = {"defaultMode": _KEY_MODE} if path == DEFAULT_SSH_PATH else {}
    volume = {"name": SSH_VOLUME, "secret": {"secretName": secret_name(job), "items": items, **mode}}
    _extend(body, "volumes", [volume])
    _extend(body["containers"][0], "volumeMounts", [{"name": SSH_VOLUME, "mountPath": path}])


def _config_volume(job: MPIJobV2) -> JSON:
    modes = {HOSTFILE: _READABLE_MODE, DISCOVERY_SCRIPT: _EXECUTABLE_MODE}
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": config_map_name(job), "items": items}}


def _extend(body: JSON, field: str, values: Iterable[JSON]) -> None:
    body[field] = [*(body.get(field) or []), *values]

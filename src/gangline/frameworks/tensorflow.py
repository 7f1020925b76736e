"""TensorFlow: TF_CONFIG, and success by chief or worker 0."""

from collections.abc import Mapping

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.tfjob import CONTAINER, PORT, PORT_NAME, TFJob
from gangline.api.training import CleanPodPolicy, ReplicaSpec, RunPolicy
from gangline.jobs.framework import Addresses, Member, Outcome, PodEdits, Port, Verdict

# Everyone looks at these first: TensorFlow's own order of who is in charge.
LEADERS = (Member("Chief", 0), Member("Master", 0), Member("Worker", 0))


class TensorFlow:
    """TFJob."""

    kind = TFJob
    container = CONTAINER
    port = Port(PORT_NAME, PORT)

    def default(self, job: TFJob) -> TFJob:
        specs = {
            kind: msgspec.structs.replace(
                spec,
                replicas=1 if spec.replicas is None else spec.replicas,
                restart_policy=spec.restart_policy or "Never",
            )
            for kind, spec in job.spec.tf_replica_specs.items()
        }
        policy = msgspec.structs.replace(
            job.spec.run_policy, clean_pod_policy=job.spec.run_policy.clean_pod_policy or CleanPodPolicy.NONE
        )
        spec = msgspec.structs.replace(job.spec, tf_replica_specs=specs, run_policy=policy)
        return msgspec.structs.replace(job, spec=spec)

    def replicas(self, job: TFJob) -> Mapping[str, ReplicaSpec]:
        return job.spec.tf_replica_specs

    def run_policy(self, job: TFJob) -> RunPolicy:
        return job.spec.run_policy

    def wiring(self, job: TFJob, member: Member, addresses: Addresses) -> PodEdits:
        if len(addresses.hosts) == 1:
            return PodEdits()
        cluster: dict[str, list[str]] = {}
        for seat in sorted(addresses.hosts, key=lambda seat: (seat.type.lower(), seat.index)):
            cluster.setdefault(seat.type.lower(), []).append(addresses.of(seat))
        config = {
            "cluster": cluster,
            "task": {"type": member.type.lower(), "index": member.index},
            "environment": "cloud",
        }
        return PodEdits(env={"TF_CONFIG": msgspec.json.encode(config).decode()})

    def verdict(self, job: TFJob, pods: Mapping[Member, Pod]) -> Verdict:
        name = f"TFJob {job.metadata.namespace}/{job.metadata.name}"
        leader = next((pods[member] for member in LEADERS if member in pods), None)
        if leader is not None and leader.status.phase == PodPhase.SUCCEEDED:
            return Verdict(Outcome.SUCCEEDED, f"{name} successfully completed.")
        for kind in self.replicas(job):
            failed = sum(m.type == kind and pod.status.phase == PodPhase.FAILED for m, pod in pods.items())
            if failed:
                return Verdict(
                    Outcome.FAILED, f"{name} has failed because {failed} {kind} replica(s) failed."
                )
        if leader is not None and leader.status.phase == PodPhase.RUNNING:
            return Verdict(Outcome.RUNNING, f"{name} is running.")
        return Verdict(Outcome.PENDING)

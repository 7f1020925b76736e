"""Models with the names of Kubeflow's SDK."""

import pytest

from gangline.sdk.build.bodies import job_body
from gangline.sdk.job import Job
from gangline.sdk.kubeflow import (
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    constants,
)


def test_a_job_made_of_models_is_what_goes_to_the_server() -> None:
    container = {"name": constants.PYTORCHJOB_CONTAINER, "image": "i"}
    worker = KubeflowOrgV1ReplicaSpec(
        replicas=2, restart_policy="OnFailure", template={"spec": {"containers": [container]}}
    )
    made = KubeflowOrgV1PyTorchJob(
        api_version=constants.API_VERSION,
        kind=constants.PYTORCHJOB_KIND,
        metadata={"name": "net"},
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            nproc_per_node="2",
            pytorch_replica_specs={"Worker": worker},
        ),
    )
    body = job_body(made)
    assert body["spec"] == {
        "runPolicy": {"cleanPodPolicy": "None"},
        "nprocPerNode": "2",
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [container]}},
            }
        },
    }
    assert Job(body).metadata.name == "net"
    assert made.to_dict()["spec"]["pytorch_replica_specs"]["Worker"]["replicas"] == 2
    assert made.status is None


def test_an_attribute_that_a_model_does_not_have_is_told_with_those_it_has() -> None:
    with pytest.raises(TypeError, match="has no replica; it has replicas, restart_policy, template"):
        KubeflowOrgV1ReplicaSpec(replica=2)


def test_models_are_equal_when_what_they_hold_is() -> None:
    assert KubeflowOrgV1RunPolicy(suspend=True) == KubeflowOrgV1RunPolicy(suspend=True)
    assert KubeflowOrgV1RunPolicy(suspend=True) != KubeflowOrgV1RunPolicy()
    assert repr(KubeflowOrgV1RunPolicy(suspend=True)) == "KubeflowOrgV1RunPolicy(suspend=True)"

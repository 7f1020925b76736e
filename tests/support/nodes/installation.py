"""gangline in a cluster with nodes: how tests install it, and what is left when it is gone."""

from support.nodes.inside import Finished, NodeCluster

NAMESPACE = "gangline"
# Everything that an installation may leave or hold.
KINDS = "deployments,services,serviceaccounts,configmaps,secrets,roles,rolebindings,poddisruptionbudgets,leases,pods"
CLUSTER_KINDS = "clusterroles,clusterrolebindings,priorityclasses,customresourcedefinitions"


def install(cluster: NodeCluster, *words: str) -> Finished:
    """Install as a user does: the operator, also for MPIJobs of both APIs, and the gang scheduler, two replicas each.

    The operator may read the stacks of jobs that hang.
    """
    done = cluster.gangline(
        "install",
        "--with",
        "scheduler",
        "--set",
        "rbac.mpiJobs=true,mpiV2beta1=true,hangWatch.stacks=true",
        *words,
        seconds=330,
    )
    assert done.code == 0, done
    return done


def is_installed(cluster: NodeCluster) -> bool:
    """Whether `gangline install` has been run since the last uninstall."""
    names = {deployment["metadata"]["name"] for deployment in cluster.objects("deployments", NAMESPACE)}
    return {"gangline-operator", "gangline-scheduler"} <= names


def objects_of_gangline(cluster: NodeCluster) -> set[str]:
    """KIND/NAME of all objects that are gangline's: in its namespace, or named or labelled so."""
    inside = {
        f"{body['kind']}/{body['metadata']['name']}"
        for body in cluster.objects(KINDS, NAMESPACE)
        # Every namespace has these.
        if (body["kind"], body["metadata"]["name"])
        not in {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
    }
    outside = {
        f"{body['kind']}/{body['metadata']['name']}"
        for body in cluster.objects(CLUSTER_KINDS)
        if "gangline" in body["metadata"]["name"] or body["metadata"]["name"].endswith("kubeflow.org")
    }
    return inside | outside

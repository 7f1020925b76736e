"""The constants of `kubeflow.training.constants`, with the same names. Import them from `gangline.sdk.kubeflow`.

A test compares them with the real package.
"""

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import (
    GROUP,
    JOB_NAME,
    JOB_ROLE,
    REPLICA_INDEX,
    REPLICA_TYPE,
    VERSION,
    ConditionType,
)
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS

DEFAULT_TIMEOUT = REQUEST_TIMEOUT_SECONDS
DEFAULT_NAMESPACE = "default"
API_VERSION = f"{GROUP}/{VERSION}"

POD_KIND = "Pod"
POD_PHASE_PENDING = "Pending"
CONDITION_STATUS_TRUE = "True"

JOB_CONDITION_CREATED = ConditionType.CREATED.value
JOB_CONDITION_RUNNING = ConditionType.RUNNING.value
JOB_CONDITION_RESTARTING = ConditionType.RESTARTING.value
JOB_CONDITION_SUSPENDED = ConditionType.SUSPENDED.value
JOB_CONDITION_SUCCEEDED = ConditionType.SUCCEEDED.value
JOB_CONDITION_FAILED = ConditionType.FAILED.value
JOB_CONDITIONS = {
    JOB_CONDITION_CREATED,
    JOB_CONDITION_RUNNING,
    JOB_CONDITION_RESTARTING,
    JOB_CONDITION_SUCCEEDED,
    JOB_CONDITION_FAILED,
}

JOB_NAME_LABEL = JOB_NAME
JOB_ROLE_LABEL = JOB_ROLE
JOB_ROLE_MASTER = "master"
REPLICA_TYPE_LABEL = REPLICA_TYPE
REPLICA_INDEX_LABEL = REPLICA_INDEX

REPLICA_TYPE_CHIEF = "Chief"
REPLICA_TYPE_PS = "PS"
REPLICA_TYPE_MASTER = "Master"
REPLICA_TYPE_WORKER = "Worker"
REPLICA_TYPE_LAUNCHER = "Launcher"

TFJOB_KIND, TFJOB_PLURAL, TFJOB_CONTAINER = "TFJob", "tfjobs", "tensorflow"
PYTORCHJOB_KIND, PYTORCHJOB_PLURAL, PYTORCHJOB_CONTAINER = "PyTorchJob", "pytorchjobs", "pytorch"
XGBOOSTJOB_KIND, XGBOOSTJOB_PLURAL, XGBOOSTJOB_CONTAINER = "XGBoostJob", "xgboostjobs", "xgboost"
MPIJOB_KIND, MPIJOB_PLURAL, MPIJOB_CONTAINER = "MPIJob", "mpijobs", "mpi"
PADDLEJOB_KIND, PADDLEJOB_PLURAL, PADDLEJOB_CONTAINER = "PaddleJob", "paddlejobs", "paddle"
JAXJOB_KIND, JAXJOB_PLURAL, JAXJOB_CONTAINER = "JAXJob", "jaxjobs", "jax"

TFJOB_MODEL, PYTORCHJOB_MODEL = "KubeflowOrgV1TFJob", "KubeflowOrgV1PyTorchJob"
XGBOOSTJOB_MODEL, MPIJOB_MODEL = "KubeflowOrgV1XGBoostJob", "KubeflowOrgV1MPIJob"
PADDLEJOB_MODEL, JAXJOB_MODEL = "KubeflowOrgV1PaddleJob", "KubeflowOrgV1JAXJob"

JOB_PARAMETERS = {
    kind.kind: {
        "model": f"KubeflowOrgV1{kind.kind}",
        "plural": kind.resource.plural,
        "container": kind.container,
    }
    for kind in TRAINING_KINDS
}
JOB_MODELS = tuple(parameters["model"] for parameters in JOB_PARAMETERS.values())

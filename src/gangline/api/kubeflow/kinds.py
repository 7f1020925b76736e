"""The six kinds of training job, in the order in which they are listed everywhere."""

from gangline.api.kubeflow.jaxjob import JAXJOB
from gangline.api.kubeflow.mpijob import MPIJOB
from gangline.api.kubeflow.paddlejob import PADDLEJOB
from gangline.api.kubeflow.pytorchjob import PYTORCHJOB
from gangline.api.kubeflow.tfjob import TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.kubeflow.xgboostjob import XGBOOSTJOB
from gangline.api.scheme import CORE_SCHEME, Scheme

TRAINING_KINDS: tuple[JobKind, ...] = (TFJOB, PYTORCHJOB, XGBOOSTJOB, MPIJOB, PADDLEJOB, JAXJOB)

JOB_SCHEME: Scheme = CORE_SCHEME.with_resources(*(kind.resource for kind in TRAINING_KINDS))
"""Kubernetes' own kinds and the six job kinds."""

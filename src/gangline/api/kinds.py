"""The six kinds of training job, in the order in which they are listed everywhere."""

from gangline.api.jaxjob import JAXJOB
from gangline.api.mpijob import MPIJOB
from gangline.api.paddlejob import PADDLEJOB
from gangline.api.pytorchjob import PYTORCHJOB
from gangline.api.scheme import CORE, Scheme
from gangline.api.tfjob import TFJOB
from gangline.api.training import JobKind
from gangline.api.xgboostjob import XGBOOSTJOB

KINDS: tuple[JobKind, ...] = (TFJOB, PYTORCHJOB, XGBOOSTJOB, MPIJOB, PADDLEJOB, JAXJOB)

JOBS: Scheme = CORE.extended(*(kind.resource for kind in KINDS))
"""Kubernetes' own kinds and ours."""

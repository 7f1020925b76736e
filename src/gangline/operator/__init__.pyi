from gangline.api.kubeflow.training import JobKind as JobKind
from gangline.api.kubeflow.training import JobStatus as JobStatus
from gangline.api.kubeflow.training import Port as Port
from gangline.api.kubeflow.training import ReplicaSpec as ReplicaSpec
from gangline.api.kubeflow.training import RestartPolicy as RestartPolicy
from gangline.api.kubeflow.training import RunPolicy as RunPolicy
from gangline.api.kubeflow.training import TrainingJob as TrainingJob
from gangline.api.meta import JSON as JSON
from gangline.api.meta import ApiStruct as ApiStruct
from gangline.api.meta import Key as Key
from gangline.frameworks.team_framework import TeamFramework as TeamFramework
from gangline.jobs.framework import Address as Address
from gangline.jobs.framework import Addresses as Addresses
from gangline.jobs.framework import Companion as Companion
from gangline.jobs.framework import ConditionText as ConditionText
from gangline.jobs.framework import EnvTarget as EnvTarget
from gangline.jobs.framework import Framework as Framework
from gangline.jobs.framework import JobOutcome as JobOutcome
from gangline.jobs.framework import PodEdits as PodEdits
from gangline.jobs.framework import Problem as Problem
from gangline.jobs.framework import Verdict as Verdict
from gangline.jobs.framework import variables as variables
from gangline.jobs.pods.replicas import Counts as Counts
from gangline.jobs.pods.replicas import Gang as Gang
from gangline.jobs.pods.replicas import Member as Member
from gangline.operator.embedding import JobReconciler as JobReconciler
from gangline.operator.engine import scheme_of as scheme_of
from gangline.operator.main import run as run
from gangline.schema.crds.job_crds import crd as crd

Into = EnvTarget
Outcome = JobOutcome
Told = ConditionText
Wire = ApiStruct

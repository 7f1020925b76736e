from gangline.sdk.async_client import AsyncTrainingClient as AsyncTrainingClient
from gangline.sdk.build.jobs import Replica as Replica
from gangline.sdk.build.jobs import jax_job as jax_job
from gangline.sdk.build.jobs import mpi_job as mpi_job
from gangline.sdk.build.jobs import paddle_job as paddle_job
from gangline.sdk.build.jobs import pytorch_job as pytorch_job
from gangline.sdk.build.jobs import tf_job as tf_job
from gangline.sdk.build.jobs import xgboost_job as xgboost_job
from gangline.sdk.client import TrainingClient as TrainingClient
from gangline.sdk.errors import JobFailed as JobFailed
from gangline.sdk.errors import TrainingError as TrainingError
from gangline.sdk.job import Job as Job
from gangline.sdk.train import Run as Run
from gangline.sdk.train import train as train

__version__: str

from gangline.sdk.aio import AsyncTrainingClient as AsyncTrainingClient
from gangline.sdk.builders import Replica as Replica
from gangline.sdk.builders import jax_job as jax_job
from gangline.sdk.builders import mpi_job as mpi_job
from gangline.sdk.builders import paddle_job as paddle_job
from gangline.sdk.builders import pytorch_job as pytorch_job
from gangline.sdk.builders import tf_job as tf_job
from gangline.sdk.builders import xgboost_job as xgboost_job
from gangline.sdk.client import TrainingClient as TrainingClient
from gangline.sdk.errors import JobFailed as JobFailed
from gangline.sdk.errors import TrainingError as TrainingError
from gangline.sdk.job import Job as Job
from gangline.sdk.train import Run as Run
from gangline.sdk.train import train as train

__version__: str

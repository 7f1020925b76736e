"""Stands for the program in the image, which starts it by a relative path: a sum over all processes."""

import os

import jax
import numpy as np
from jax.experimental import multihost_utils

jax.distributed.initialize(
    coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    num_processes=int(os.environ["NUM_PROCESSES"]),
    process_id=int(os.environ["PROCESS_ID"]),
)
total = int(multihost_utils.process_allgather(np.array(jax.process_index() + 1)).sum())
print(f"trained: process {jax.process_index()} of {jax.process_count()}, sum {total}", flush=True)
raise SystemExit(total != jax.process_count() * (jax.process_count() + 1) // 2)

"""Linear regression with DistributedDataParallel: gangline run --nproc 4 -- python train_torch.py"""

import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 200

dist.init_process_group("gloo")  # rank, world size and address come from the environment
rank, world = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {world}", flush=True)
truth = torch.linspace(-1, 1, 16).reshape(16, 1)
data = torch.Generator().manual_seed(rank)  # each rank has its own data
model = DistributedDataParallel(torch.nn.Linear(16, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(1, STEPS + 1):
    inputs = torch.randn(64, 16, generator=data)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()  # averages the gradients of all ranks
    optimizer.step()
    if step % 10 == 0:  # one line of JSON: a bar on the screen, docs/progress.md
        print(json.dumps({"progress": {"step": step, "total": STEPS, "loss": loss.item()}}), flush=True)
print(f"trained: largest error of a weight {(model.module.weight.T - truth).abs().max():.6f}", flush=True)
dist.barrier()  # the job ends with rank 0: it waits for the others
dist.destroy_process_group()

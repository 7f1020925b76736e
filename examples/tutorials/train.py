import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 200

dist.init_process_group("gloo")  # gangline has set rank, world size and address
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
    if step % 10 == 0:
        print(json.dumps({"progress": {"step": step, "total": STEPS, "loss": loss.item()}}), flush=True)

error = (model.module.weight.T - truth).abs().max()
print(f"trained: largest error {error:.4f}", flush=True)
dist.barrier()  # rank 0 waits for the others, for the job ends with it
dist.destroy_process_group()

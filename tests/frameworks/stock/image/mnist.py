"""Stands for the program in the image: classifies made-up digits with DistributedDataParallel."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, required=True)
given = options.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
digits = torch.randn(10, 64, generator=torch.Generator().manual_seed(7))
random = torch.Generator().manual_seed(100 + dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accuracy = 0.0
for _ in range(100 * given.epochs):
    labels = torch.randint(10, (64,), generator=random)
    scores = model(digits[labels] + torch.randn(64, 64, generator=random))
    accuracy = (scores.argmax(dim=1) == labels).float().mean().item()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(scores, labels).backward()
    optimizer.step()
print(f"trained: rank {dist.get_rank()} of {dist.get_world_size()}, accuracy {accuracy:.2f}", flush=True)
dist.barrier()
dist.destroy_process_group()
raise SystemExit(accuracy < 0.9)

"""Linear regression with PyTorch's DistributedDataParallel over gloo.

Address, rank and world size come from the environment. A PyTorchJob sets them; under torchrun its agent does.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FEATURES = 16


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=200)
    steps = arguments.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank={rank} world={world} pid={os.getpid()}", flush=True)
    train(rank, steps)
    dist.barrier()  # nobody leaves, and so ends the job, before all have trained
    dist.destroy_process_group()


def train(rank: int, steps: int) -> None:
    """Each rank has its own data; the gradients are averaged, so all find the same weights."""
    truth = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(7))
    data = torch.Generator().manual_seed(100 + rank)
    model = DistributedDataParallel(torch.nn.Linear(FEATURES, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, steps + 1):
        inputs = torch.randn(64, FEATURES, generator=data)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 50 == 0:
            print(f"step={step} of={steps} loss={loss.item():.6f}", flush=True)
    check(model.module.weight.detach().T, truth)


def check(weights: torch.Tensor, truth: torch.Tensor) -> None:
    """The sum over all ranks must be right, the weights equal on all, and near the truth."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(float(rank + 1))
    dist.all_reduce(total)
    everyones = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everyones, weights.contiguous())
    distance = (weights - truth).abs().max().item()
    print(f"trained: largest error of a weight {distance:.6f}", flush=True)
    if total.item() != world * (world + 1) / 2:
        raise SystemExit(f"the sum over {world} ranks is {total.item()}")
    if not all(torch.equal(weights, other) for other in everyones):
        raise SystemExit("the ranks have different weights")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()

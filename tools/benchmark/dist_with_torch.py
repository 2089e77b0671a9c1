"""A rank of PyTorch's DDP over gloo: dist_with_torch.py WORKLOAD SECONDS RANK ADDRESS."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from dist_timing import LENGTH, MLP, VOCABULARY, WIDTH, WORKLOADS, measure
from torch import nn
from with_torch import resnet

STEPS = 2
BUCKET = 25 << 20  # bytes: DDP's default


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Any) -> Any:
        return self.out(self.rnn(self.embed(x))[0]).flatten(0, 1)


def alexnet() -> nn.Module:
    layers: list[nn.Module] = []
    n_in = 3
    shapes = [(64, 11, 4, 2, 1), (192, 5, 1, 2, 1), (384, 3, 1, 1, 0), (256, 3, 1, 1, 0)]
    for n_out, kernel, stride, pad, pooled in [*shapes, (256, 3, 1, 1, 1)]:
        layers += [nn.Conv2d(n_in, n_out, kernel, stride, pad), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] * pooled
        n_in = n_out
    dense = [nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Dropout(), nn.Linear(4096, 1000))


def made(name: str, batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    if name == "LSTM LM":
        words = torch.randint(VOCABULARY, (2, LENGTH, batch))
        return Language(), words[0], words[1].flatten()
    if name == "MLP 60 M":
        layers: list[nn.Module] = []
        for n_in, n_out in zip(MLP, MLP[1:]):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        return nn.Sequential(*layers), torch.randn(batch, MLP[0]), torch.randint(MLP[-1], (batch,))
    net = alexnet() if name == "AlexNet" else resnet((2, 2, 2, 2), False)
    return net, torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))


def main(name: str, seconds: float, rank: int, address: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=2)
    net, x, y = made(name, WORKLOADS[name])
    both = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    n = sum(p.numel() for p in net.parameters())
    buckets = list(torch.zeros(n).split(BUCKET // 4))

    def step(model: nn.Module) -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    def communicate() -> None:
        for _ in range(STEPS):
            for work in [dist.all_reduce(b, async_op=True) for b in buckets]:
                work.wait()

    def agreed(value: float) -> float:
        shared = torch.tensor([value])
        dist.broadcast(shared, 0)
        return float(shared)

    steps = {
        "alone": lambda: step(net),
        "distributed": lambda: step(both),
        "communication": communicate,
    }
    measure(rank, n * 4e-6 * STEPS, seconds, dist.barrier, steps, agreed)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

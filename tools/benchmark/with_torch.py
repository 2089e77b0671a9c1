"""The workloads on PyTorch, eager or compiled; the networks for ONNX Runtime too.

usage: with_torch.py WORKLOAD SECONDS eager|compile
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from timing import time_workload
from torch import nn

torch.manual_seed(0)


class Chain(nn.Module):
    def forward(self, x: Any) -> Any:
        for _ in range(50):
            x = torch.relu(x * 1.01 + 0.1)
        return x


class Gelu(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        z = x * y + x
        return 0.5 * z * (1 + torch.tanh(0.79788456 * (z + 0.044715 * z * z * z)))


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))"""

    def __init__(self, body: Any, shortcut: Any):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.shortcut(x))


def conv(
    n_in: Any, n_out: Any, kernel: Any, stride: int = 1, groups: int = 1, act: Any = None
) -> Any:
    pad = kernel // 2
    layers = [nn.Conv2d(n_in, n_out, kernel, stride, pad, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(n_out), *([act()] if act else []))


def resnet(depths: Any, bottleneck: Any) -> Any:
    layers, n_in = [conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        n_out = 4 * width if bottleneck else width
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if bottleneck:
                body = nn.Sequential(
                    conv(n_in, width, 1, stride, act=nn.ReLU),
                    conv(width, width, 3, act=nn.ReLU),
                    conv(width, n_out, 1),
                )
            else:
                body = nn.Sequential(
                    conv(n_in, width, 3, stride, act=nn.ReLU), conv(width, n_out, 3)
                )
            same = stride == 1 and n_in == n_out
            layers.append(Residual(body, nn.Identity() if same else conv(n_in, n_out, 1, stride)))
            n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 1000))


class Inverted(nn.Module):
    def __init__(self, n_in: Any, n_out: Any, expand: Any, stride: Any):
        super().__init__()
        wide = n_in * expand
        self.add = stride == 1 and n_in == n_out
        self.body = nn.Sequential(
            conv(n_in, wide, 1, act=nn.ReLU6),
            conv(wide, wide, 3, stride, groups=wide, act=nn.ReLU6),
            conv(wide, n_out, 1),
        )

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.add else self.body(x)


def mobilenet_v2() -> Any:
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    rows += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers, n_in = [conv(3, 32, 3, 2, act=nn.ReLU6)], 32
    for expand, n_out, count, stride in rows:
        for i in range(count):
            layers.append(Inverted(n_in, n_out, expand, stride if i == 0 else 1))
            n_in = n_out
    layers += [conv(n_in, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000, bias=False))


class LanguageModel(nn.Module):
    def __init__(self, layer: Any):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(5000, 256), layer(256, 256, 2)
        self.out = nn.Linear(256, 5000)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(self.embedding(x))[0])


class EncoderLayer(nn.Module):
    def __init__(self, width: Any, n_heads: Any):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.n_heads, -1).transpose(1, 2)
            for t in self.qkv(x).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.norm_1(x + self.join(y.transpose(1, 2).reshape(batch, length, width)))
        return self.norm_2(x + self.narrow(nn.functional.gelu(self.wide(x))))


def transformer() -> Any:
    layers = [EncoderLayer(256, 4) for _ in range(4)]
    return nn.Sequential(nn.Embedding(5000, 256), *layers, nn.Linear(256, 5000))


def mlp() -> Any:
    layers = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def lenet() -> Any:
    features = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2, 2)]
    features += [nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def tokens(*shape: Any) -> Any:
    return torch.randint(0, 5000, shape)


NETS = {  # of inference: name -> (network, its input)
    "resnet18_infer_b1": lambda: (resnet([2, 2, 2, 2], False), torch.rand(1, 3, 224, 224)),
    "resnet50_infer_b1": lambda: (resnet([3, 4, 6, 3], True), torch.rand(1, 3, 224, 224)),
    "mobilenetv2_infer_b1": lambda: (mobilenet_v2(), torch.rand(1, 3, 224, 224)),
    "resnet18_infer_b5": lambda: (resnet([2, 2, 2, 2], False), torch.rand(5, 3, 200, 216)),
    "transformer_infer": lambda: (transformer(), tokens(8, 128)),
    "transformer_infer_odd": lambda: (transformer(), tokens(3, 77)),
    "lstm_infer": lambda: (LanguageModel(nn.LSTM), tokens(35, 20)),
    "mlp_infer": lambda: (mlp(), torch.rand(64, 784)),
}


def tuned(net: Any) -> Any:
    return torch.compile(net) if sys.argv[3] == "compile" else net


def add(n: Any) -> Any:
    def make():
        a, b = torch.ones(n, n), torch.ones(n, n)
        return lambda: [a + b for _ in range(100)], 100

    return make


def forward(make_net: Any) -> Any:
    def make():
        net, *inputs = make_net()
        net = tuned(net.eval())

        def step():
            with torch.inference_mode():
                return net(*inputs)

        return step

    return make


def training(net: Any, x: Any, y: Any, optimizer: Any = None) -> Any:
    def make():
        made = net().train()
        model = tuned(made)
        optimize = (optimizer or sgd)(made.parameters())

        def step():
            optimize.zero_grad(set_to_none=True)
            scores = model(x)
            nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten()).backward()
            optimize.step()

        return step

    return make


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.01)


def photograph_loader() -> Any:
    """A batch of cropped, mirrored and normalised photographs: Pillow in two worker processes, the
    steps as torchvision has them."""
    import random

    import numpy as np
    import photographs as p
    from PIL import Image

    folder, paths = p.make()
    mean, std = (torch.tensor(v)[:, None, None] for v in (p.MEAN, p.STD))

    class Photographs(torch.utils.data.Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, i):
            with open(paths[i], "rb") as file:
                image = Image.open(file).convert("RGB")
            x, y = (random.randint(0, p.EDGE - p.CROP) for _ in range(2))
            image = image.crop((x, y, x + p.CROP, y + p.CROP))
            if random.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
            return pixels.to(torch.float32).div(255).sub_(mean).div_(std), i % 2

    loader = torch.utils.data.DataLoader(
        Photographs(), p.BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    batches = p.forever(lambda: iter(loader))
    return lambda: (folder, next(batches))


def vectors() -> Any:
    return torch.rand(1 << 22) - 0.5


CHAIN = forward(lambda: (Chain(), torch.ones(32, 32)))
MLP = training(mlp, torch.rand(64, 784), torch.randint(0, 10, (64,)))
WORKLOADS = {name: forward(make) for name, make in NETS.items()}
WORKLOADS |= {
    "eager_add_4": add(4),
    "eager_add_64": add(64),
    "chain_eager": CHAIN,
    "chain_hybrid": CHAIN,
    "gelu_4m": forward(lambda: (Gelu(), vectors(), vectors())),
    "mlp_train_eager": MLP,
    "mlp_train_hybrid": MLP,
    "lenet_train": training(lenet, torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))),
    "resnet18_train_b8": training(
        lambda: resnet([2, 2, 2, 2], False),
        torch.rand(8, 3, 224, 224),
        torch.randint(0, 1000, (8,)),
    ),
    "lstm_train": training(lambda: LanguageModel(nn.LSTM), tokens(35, 20), tokens(35, 20)),
    "gru_train": training(lambda: LanguageModel(nn.GRU), tokens(23, 13), tokens(23, 13)),
    "transformer_train": training(transformer, tokens(8, 128), tokens(8, 128), adam),
    "images_record_iter": photograph_loader,
    "images_loader": photograph_loader,
    "images_loader_threads": photograph_loader,
}
if sys.argv[3] == "compile":  # it has neither eager calls nor loaders
    for name in [name for name in WORKLOADS if "eager" in name or "images" in name]:
        del WORKLOADS[name]

if __name__ == "__main__":
    time_workload(WORKLOADS)

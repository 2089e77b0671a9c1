"""The workloads of GPUs on PyTorch, eager or compiled.

usage: gpu_with_torch.py WORKLOAD SECONDS eager|compile full|tiny
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from timing import time_workload

TINY = sys.argv[4] == "tiny"
torch.set_default_device("cuda")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True

from with_torch import (  # noqa: E402  (their tensors are made on the GPU)
    Chain,
    EncoderLayer,
    Gelu,
    LanguageModel,
    add,
    lenet,
    mlp,
    nn,
    resnet,
    sgd,
    tuned,
)

BYTES = 4


def size(full: Any, tiny: Any) -> Any:
    return tiny if TINY else full


LARGE = size(1 << 26, 1 << 10)
ROWS = size((1 << 14, 1 << 12), (8, 16))
EDGE = size(224, 32)
BATCH = size(64, 2)
TOKENS = (BATCH, size(512, 8))
WIDTH, N_LAYERS, VOCABULARY = size((1024, 12, 32000), (16, 1, 20))
LSTM = (size(128, 3), size(64, 2))


def resnet50() -> Any:
    return resnet([1, 1, 1, 1] if TINY else [3, 4, 6, 3], True)


def network() -> Any:
    layers = [EncoderLayer(WIDTH, 4) for _ in range(N_LAYERS)]
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY))


class LargeModel(LanguageModel):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        words, hidden = size((10000, 1024), (20, 16))
        self.embedding, self.layer = nn.Embedding(words, hidden), nn.LSTM(hidden, hidden, 2)
        self.out = nn.Linear(hidden, words)


def moving(make_step: Any, n_bytes: Any) -> Any:
    def make():
        return make_step(), 1, n_bytes

    return make


def vector(n: Any = LARGE) -> Any:
    return torch.rand(n) - 0.5


def copy() -> Any:
    x, y = vector(), vector()
    return lambda: y.copy_(x)


def large_add() -> Any:
    x, y, z = vector(), vector(), vector()
    return lambda: torch.add(x, y, out=z)


def forward(make_net: Any, *inputs: Any, low: bool = False) -> Any:
    def make():
        net = make_net().eval()
        net = tuned(net.to(torch.bfloat16) if low else net)
        data = [i() for i in inputs]

        def step():
            with torch.inference_mode():
                return net(*data)

        return step

    return make


class Rows(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def rows(function: Callable[..., Any]) -> Any:
    return forward(lambda: Rows(function), lambda: vector(ROWS[0] * ROWS[1]).view(ROWS))


def training(make_net: Any, x: Any, y: Any, optimizer: Any = sgd, low: bool = False) -> Any:
    def make():
        made = make_net().train()
        model, optimize, data, labels = tuned(made), optimizer(made.parameters()), x(), y()

        def step():
            optimize.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=low):
                scores = model(data)
                loss = nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
            loss.backward()
            optimize.step()

        return step

    return make


def lstm(hidden: Any, train: bool = True) -> Any:
    """Two layers alone; torch has cuDNN's only."""

    def make():
        width = size(hidden, 16)
        net = tuned(nn.LSTM(width, width, 2))
        x = (torch.rand(*LSTM, width) - 0.5).requires_grad_(train)
        ones = torch.ones(*LSTM, width)

        def step():
            if not train:
                with torch.inference_mode():
                    return net(x)
            net(x)[0].backward(ones)

        return step

    return make


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.01, fused=True)


def images(batch: Any) -> Any:
    return lambda: torch.rand(batch, 3, EDGE, EDGE)


def whole(n: Any, *shape: Any) -> Any:
    return lambda: torch.randint(0, n, shape)


CHUNK = size((1 << 13, 1 << 10), (4, 8))
CHUNKS = size(16, 3)


def stream(copies: Any, computes: Any) -> Any:
    def make():
        x = torch.ones(CHUNK[0] * CHUNKS, CHUNK[1], device="cpu").pin_memory()
        out = torch.zeros(x.shape, device="cpu").pin_memory()
        w, there = torch.ones(CHUNK[1], CHUNK[1]) / CHUNK[1], torch.ones(CHUNK)

        def work(part):
            for _ in range(8 if computes else 0):
                part = torch.relu(part @ w * 1.01)
            return part

        def step():
            for i in range(CHUNKS):
                at = slice(i * CHUNK[0], (i + 1) * CHUNK[0])
                part = x[at].to("cuda", non_blocking=True) if copies else there
                part = work(part)
                if copies:
                    out[at].copy_(part, non_blocking=True)

        return step

    return make


def used_mib() -> Any:
    free, total = torch.cuda.mem_get_info()
    return (total - free) / (1 << 20)


N = LARGE * BYTES
ROW_BYTES = 2 * BYTES * ROWS[0] * ROWS[1]
LABELS = whole(10, BATCH)
WORDS, LSTM_WORDS = whole(VOCABULARY, *TOKENS), whole(size(10000, 20), *LSTM)
WORKLOADS = {
    "copy": moving(copy, 2 * N),
    "add_large": moving(large_add, 3 * N),
    "gelu_chain": moving(forward(Gelu, vector, vector), 3 * N),
    "softmax_rows": moving(rows(lambda x: torch.softmax(x, -1)), ROW_BYTES),
    "layer_norm_rows": moving(rows(lambda x: nn.functional.layer_norm(x, x.shape[-1:])), ROW_BYTES),
    "eager_add_4": add(4),
    "chain_50": forward(Chain, lambda: torch.ones(32, 32)),
    "mlp_train": training(mlp, lambda: torch.rand(64, 784), whole(10, 64)),
    "lenet_train": training(lenet, lambda: torch.rand(BATCH, 1, 28, 28), LABELS),
    "resnet50_infer_b1": forward(resnet50, images(1)),
    "resnet50_infer_b64": forward(resnet50, images(BATCH)),
    "resnet50_train": training(resnet50, images(BATCH), LABELS),
    "resnet50_train_bf16": training(resnet50, images(BATCH), LABELS, low=True),
    "lstm_train": training(LargeModel, LSTM_WORDS, LSTM_WORDS),
    "lstm_256_ours": lstm(256),
    "lstm_256_cudnn": lstm(256),
    "lstm_1024_ours": lstm(1024),
    "lstm_1024_cudnn": lstm(1024),
    "lstm_1024_infer_ours": lstm(1024, train=False),
    "lstm_1024_infer_cudnn": lstm(1024, train=False),
    "transformer_infer_bf16": forward(network, WORDS, low=True),
    "transformer_train_bf16": training(network, WORDS, WORDS, adam, low=True),
    "stream_copy": stream(copies=True, computes=False),
    "stream_compute": stream(copies=False, computes=True),
    "stream_both": stream(copies=True, computes=True),
}
if sys.argv[3] == "compile":
    for name in ("copy", "eager_add_4", "stream_copy", "stream_compute", "stream_both"):
        del WORKLOADS[name]

if __name__ == "__main__":
    time_workload(WORKLOADS, torch.cuda.synchronize, memory=used_mib)

"""The workloads of GPUs on plait.

usage: gpu_with_plait.py WORKLOAD SECONDS MODULE full|tiny
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

TINY = sys.argv[4] == "tiny"
os.environ.setdefault("PLAIT_TF32", "1")  # as in the other frameworks

import numpy as np  # noqa: E402
from timing import time_workload  # noqa: E402
from with_mxnet_api import (  # noqa: E402
    Chain,
    Gelu,
    LanguageModel,
    Transformer,
    add,
    autograd,
    classes,
    forward,
    gluon,
    images,
    lenet,
    mlp,
    mx,
    nd,
    nn,
    ready,
    tokens,
    training,
    zoo,
)

BYTES = 4
gpu = mx.gpu(0)
mx.Context.default_ctx = gpu


def size(full: Any, tiny: Any) -> Any:
    return tiny if TINY else full


LARGE = size(1 << 26, 1 << 10)  # elements
ROWS = size((1 << 14, 1 << 12), (8, 16))
IMAGE = (3, size(224, 16), size(224, 16))
BATCH = size(64, 2)
TOKENS = (BATCH, size(512, 8))
LAYERS = {"width": size(1024, 16), "n_layers": size(12, 1), "vocabulary": size(32000, 20)}
LSTM = (size(128, 3), size(64, 2))  # length, batch


class Residual(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.conv = nn.Conv2D(8, 3, padding=1, in_channels=8)
            self.norm = nn.BatchNorm(in_channels=8)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.relu(x + self.norm(self.conv(x)))


def small() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, 2), nn.BatchNorm(), Residual(), nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


def resnet50() -> Any:
    return small() if TINY else zoo("resnet50_v1")()


def language_model() -> Any:
    sizes = {"vocabulary": 20, "hidden": 16} if TINY else {"vocabulary": 10000, "hidden": 1024}
    return LanguageModel(gluon.rnn.LSTM, **sizes)


def lstm(hidden: Any, by_cudnn: Any, train: bool = True) -> Any:
    """Two layers alone, by cuDNN or by our kernel, regardless of the rule that normally selects one
    by size."""

    def make():
        tables = importlib.import_module(f"{sys.argv[3]}.kernels.cuda.recurrent_plan")
        setattr(tables, "LIBRARY", by_cudnn)
        width = size(hidden, 16)
        net = ready(lambda: gluon.rnn.LSTM(width, 2, input_size=width))
        x = nd.random.uniform(-0.5, 0.5, (*LSTM, width), ctx=gpu)
        x.attach_grad()

        def step():
            with autograd.record() if train else autograd.pause():
                y = net(x)
            if train:
                y.backward()

        return step

    return make


def words(*shape: Any) -> Any:
    return lambda: tokens(*shape)() % LAYERS["vocabulary"]


def moving(make_step: Any, n_bytes: Any) -> Any:
    """A memory-bound workload."""

    def make():
        step = make_step()
        return step, 1, n_bytes

    return make


def vector(n: Any = LARGE) -> Any:
    return nd.random.uniform(-0.5, 0.5, n, ctx=gpu)


def copy() -> Any:
    x, y = vector(), vector()
    return lambda: x.copyto(y)


def large_add() -> Any:
    x, y, z = vector(), vector(), vector()
    return lambda: nd.elemwise_add(x, y, out=z)


def chain() -> Any:
    net, x, y = ready(Gelu), vector(), vector()
    return lambda: net(x, y)


def rows(function: Callable[..., Any]) -> Any:
    def make():
        x = vector(ROWS[0] * ROWS[1]).reshape(ROWS)
        return lambda: function(x)

    return make


def layer_norm(x: Any) -> Any:
    return nd.LayerNorm(x, nd.ones(ROWS[1]), nd.zeros(ROWS[1]))


def low(make: Any) -> Any:
    """In bfloat16."""

    def made():
        mx.contrib.amp.init("bfloat16")
        return make()

    return made


def low_forward(make_net: Any, data: Any) -> Any:
    def make():
        net, x = ready(make_net), data()
        net(x).wait_to_read()
        net.cast("bfloat16")
        net.hybridize(static_alloc=True, static_shape=True)
        return lambda: net(x)

    return make


CHUNK = size((1 << 13, 1 << 10), (4, 8))
CHUNKS = size(16, 3)


def stream(copies: Any, computes: Any) -> Any:
    """Chunks that are copied to the GPU, go through a matrix product and pointwise operators, and
    are copied back."""

    def make():
        x = nd.array(np.ones((CHUNK[0] * CHUNKS, CHUNK[1]), "float32"), ctx=mx.cpu_pinned())
        w = nd.ones((CHUNK[1], CHUNK[1])) * (1 / CHUNK[1])
        there = nd.ones(CHUNK)

        def work(part):
            for _ in range(8 if computes else 0):
                part = nd.relu(nd.dot(part, w) * 1.01)
            return part

        if not copies:
            return lambda: [work(there) for _ in range(CHUNKS)]
        out = nd.zeros(x.shape, ctx=mx.cpu_pinned())
        return lambda: mx.stream(work, x, ctx=gpu, rows=CHUNK[0], out=out)

    return make


def used_mib() -> Any:
    free, total = mx.context.gpu_memory_info(0)
    return (total - free) / (1 << 20)


network = lambda: Transformer(**LAYERS)
N = LARGE * BYTES
WORKLOADS = {
    "copy": moving(copy, 2 * N),
    "add_large": moving(large_add, 3 * N),
    "gelu_chain": moving(chain, 3 * N),
    "softmax_rows": moving(rows(nd.softmax), 2 * BYTES * ROWS[0] * ROWS[1]),
    "layer_norm_rows": moving(rows(layer_norm), 2 * BYTES * ROWS[0] * ROWS[1]),
    "eager_add_4": add(4),
    "chain_50": forward(Chain, lambda: nd.ones((32, 32))),
    "mlp_train": training(mlp, images(64, 784), classes(10, 64)),
    "lenet_train": training(lenet, images(size(64, 2), 1, 28, 28), classes(10, size(64, 2))),
    "resnet50_infer_b1": forward(resnet50, images(1, *IMAGE)),
    "resnet50_infer_b64": forward(resnet50, images(BATCH, *IMAGE)),
    "resnet50_train": training(resnet50, images(BATCH, *IMAGE), classes(10, BATCH)),
    "resnet50_train_bf16": low(training(resnet50, images(BATCH, *IMAGE), classes(10, BATCH))),
    "lstm_train": training(language_model, words(*LSTM), words(*LSTM)),
    "lstm_256_ours": lstm(256, by_cudnn=False),
    "lstm_256_cudnn": lstm(256, by_cudnn=True),
    "lstm_1024_ours": lstm(1024, by_cudnn=False),
    "lstm_1024_cudnn": lstm(1024, by_cudnn=True),
    "lstm_1024_infer_ours": lstm(1024, by_cudnn=False, train=False),
    "lstm_1024_infer_cudnn": lstm(1024, by_cudnn=True, train=False),
    "transformer_infer_bf16": low_forward(network, words(*TOKENS)),
    "transformer_train_bf16": low(
        training(network, words(*TOKENS), words(*TOKENS), optimizer="adam")
    ),
    "stream_copy": stream(copies=True, computes=False),
    "stream_compute": stream(copies=False, computes=True),
    "stream_both": stream(copies=True, computes=True),
}
if __name__ == "__main__":
    time_workload(WORKLOADS, nd.waitall, mx.wait_compiled, used_mib)

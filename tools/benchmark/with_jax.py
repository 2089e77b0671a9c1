"""The workloads of pointwise chains, the MLP and the transformer on JAX.

usage: with_jax.py WORKLOAD SECONDS
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from timing import time_workload

KEYS = iter(jax.random.split(jax.random.PRNGKey(0), 1000))
waiting: list = []


def normal(*shape: Any) -> Any:
    return jax.random.normal(next(KEYS), shape) * 0.05


def kept(function: Callable[..., Any]) -> Any:
    """A step whose result the next `sync` waits for."""

    def step():
        waiting[:] = [function()]

    return step


def sync() -> None:
    jax.block_until_ready(waiting)


def add(n: Any) -> Any:
    def make():
        a, b = jnp.ones((n, n)), jnp.ones((n, n))
        return kept(lambda: [a + b for _ in range(100)]), 100

    return make


def chain() -> Any:
    @jax.jit
    def run(x):
        for _ in range(50):
            x = jax.nn.relu(x * 1.01 + 0.1)
        return x

    x = jnp.ones((32, 32))
    return kept(lambda: run(x))


def gelu() -> Any:
    @jax.jit
    def run(x, y):
        z = x * y + x
        return 0.5 * z * (1 + jnp.tanh(0.79788456 * (z + 0.044715 * z * z * z)))

    x, y = normal(1 << 22), normal(1 << 22)
    return kept(lambda: run(x, y))


def dense(n_in: Any, n_out: Any) -> dict[str, Any]:
    return {"w": normal(n_in, n_out), "b": jnp.zeros(n_out)}


def apply(layer: Any, x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def norm(layer: Any, x: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * layer["w"] + layer["b"]


def mlp(layers: Any, x: Any) -> Any:
    for layer in layers[:-1]:
        x = jax.nn.relu(apply(layer, x))
    return apply(layers[-1], x)


def transformer_weights(width: int = 256, n_layers: int = 4) -> dict[str, Any]:
    def layer():
        sizes = {"qkv": (width, 3 * width), "join": (width, width)}
        sizes |= {"wide": (width, 4 * width), "narrow": (4 * width, width)}
        norms = {n: {"w": jnp.ones(width), "b": jnp.zeros(width)} for n in ("n1", "n2")}
        return {name: dense(*size) for name, size in sizes.items()} | norms

    layers = [layer() for _ in range(n_layers)]
    return {"embedding": normal(5000, width), "layers": layers, "out": dense(width, 5000)}


def transformer(weights: Any, x: Any) -> Any:
    x = weights["embedding"][x]
    batch, length, width = x.shape
    for layer in weights["layers"]:
        q, k, v = (
            t.reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3)
            for t in jnp.split(apply(layer["qkv"], x), 3, -1)
        )
        scores = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * (width // 4) ** -0.5, -1)
        y = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = norm(layer["n1"], x + apply(layer["join"], y))
        wide = jax.nn.gelu(apply(layer["wide"], x), approximate=False)
        x = norm(layer["n2"], x + apply(layer["narrow"], wide))
    return apply(weights["out"], x)


def sgd(state: Any, weights: Any, grads: Any) -> Any:
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
    return state, jax.tree.map(lambda w, m: w - 0.01 * m, weights, state)


def adam(state: Any, weights: Any, grads: Any) -> Any:
    mean, var = state if isinstance(state, tuple) else (state, state)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    var = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, var, grads)
    step = jax.tree.map(lambda w, m, v: w - 0.01 * m / (jnp.sqrt(v) + 1e-8), weights, mean, var)
    return (mean, var), step


def training(predict: Any, make_weights: Any, x: Any, y: Any, update: Any) -> Any:
    def make():
        weights = make_weights()
        zeros = jax.tree.map(jnp.zeros_like, weights)
        now = [(zeros, zeros) if update is adam else zeros, weights]

        def loss(weights):
            rows = jax.nn.log_softmax(predict(weights, x), -1)
            return -jnp.take_along_axis(rows, y[..., None], -1).mean()

        @jax.jit
        def run(state, weights):
            return update(state, weights, jax.grad(loss)(weights))

        def step():
            now[:] = run(*now)
            waiting[:] = now

        return step

    return make


def tokens(*shape: Any) -> Any:
    return jax.random.randint(next(KEYS), shape, 0, 5000)


def inference(x: Any) -> Any:
    def make():
        weights, run = transformer_weights(), jax.jit(transformer)
        return kept(lambda: run(weights, x))

    return make


MLP = training(
    mlp,
    lambda: [dense(784, 128), dense(128, 64), dense(64, 10)],
    normal(64, 784),
    jax.random.randint(next(KEYS), (64,), 0, 10),
    sgd,
)
time_workload(
    {
        "eager_add_4": add(4),
        "eager_add_64": add(64),
        "chain_hybrid": chain,
        "gelu_4m": gelu,
        "mlp_train_hybrid": MLP,
        "transformer_infer": inference(tokens(8, 128)),
        "transformer_infer_odd": inference(tokens(3, 77)),
        "transformer_train": training(
            transformer, transformer_weights, tokens(8, 128), tokens(8, 128), adam
        ),
    },
    sync,
)

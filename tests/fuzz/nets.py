"""Random small nets: hybridized and compiled they give what the eager net gives, and its gradients.
Parameters are random numbers, biases and statistics too: what a pass forgets is seen.

Every layer keeps the shape's meaning (pictures, sequences, rows), so that any line may go.
"""

from __future__ import annotations

import random

import numpy as np
import plait as mx
from plait.gluon import nn, rnn  # noqa: F401  (for scripts)

from . import worker

# ---- what scripts call ---------------------------------------------------------------------------

TOLERANCE = {"float64": 1e-7, "float32": 3e-3, "float16": 6e-2}
CALLS = 3  # of each compiled net: tier 0 serves the first


class Residual(nn.HybridBlock):
    """x + f(x)."""

    def __init__(self, *layers):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(*layers)

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        return x + self.body(x)


class Join(nn.HybridBlock):
    """The results of several layers side by side."""

    def __init__(self, *layers, axis=1):
        super().__init__()
        self.axis = axis
        self.parts = nn.HybridSequential()
        self.parts.add(*layers)

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        return F.concat(*[part(x) for part in self.parts], dim=self.axis)


class Gate(nn.HybridBlock):
    """f(x) * sigmoid(g(x)), or a plain use of operators."""

    def __init__(self, f, g):
        super().__init__()
        self.f, self.g = f, g

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        return self.f(x) * F.sigmoid(self.g(x)) + F.mean(x, axis=-1, keepdims=True)


class Affine(nn.HybridBlock):
    """A product of rows and a bias, written with operators."""

    def __init__(self, units, in_units):
        super().__init__()
        self.weight = self.params.get("weight", shape=(units, in_units))
        self.bias = self.params.get("bias", shape=(units,), init="zeros")

    def hybrid_forward(self, F, x, weight, bias):  # noqa: N803 - Gluon's name
        return F.broadcast_add(F.dot(x, weight, transpose_b=True), bias)


class Unrolled(nn.HybridBlock):
    """A recurrent cell over sequences of two to five steps."""

    def __init__(self, cell, length):
        super().__init__()
        self.cell, self.length = cell, length

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        return self.cell.unroll(self.length, x, layout="TNC", merge_outputs=True)[0]


def compare(net, shape, dtype: str, seed: int, recompute=None, train=True, others=()) -> None:
    """Eager, tier 0 and tier 1: outputs, gradients of parameters and input. others: more (shape,
    dtype, train) that the hybridized net is called with, in turn. Raises AssertionError, and what
    the eager net raises."""
    mx.seed_all(seed)
    net.initialize(mx.init.Xavier(magnitude=2))
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    net(mx.nd.array(values))
    kept = {k: numbers(rng, k, p.data().asnumpy()) for k, p in net.collect_params().items()}
    calls = [(values, dtype, train)]
    calls += [(rng.normal(size=shape), *more) for shape, *more in others]
    wanted = [results(net, kept, *given) for given in calls]
    net.hybridize(recompute=recompute)
    try:
        _hybridized(net, kept, calls, wanted)
    except mx.MXNetError as error:
        raise AssertionError(f"hybridized it is refused: {error}") from error


def _hybridized(net, kept, calls, wanted) -> None:
    for number, (given, want) in enumerate(zip(calls, wanted)):
        for call in range(CALLS):
            near(f"input {number}, call {call + 1}", results(net, kept, *given), want, given[1])
            if not worker.compiled():
                return
        rows = net.hybrid_report().rows
        assert worker.TIER == "0" or not rows or max(r.tier for r in rows) == 1, "never at tier 1"
    for given, want in zip(calls, wanted):  # nothing is built anew
        near("once more", results(net, kept, *given), want, given[1])


def numbers(rng, name: str, made: np.ndarray) -> np.ndarray:
    """Where an initializer gives all elements one value: a bias, statistics, a scale."""
    if made.size > 1 and np.ptp(made) > 0:
        return made
    return rng.uniform(0.5, 1.5, made.shape) if (made > 0).all() else rng.normal(size=made.shape)


def results(net, kept, values, dtype, train) -> dict[str, np.ndarray]:
    parameters = net.collect_params()
    if getattr(net, "dtype_of_all", None) != dtype:
        net.cast(dtype)  # forgets what was compiled
        net.dtype_of_all = dtype
    for name, p in parameters.items():  # running statistics too
        p.set_data(mx.nd.array(kept[name], dtype=dtype))
    x = mx.nd.array(values, dtype=dtype)
    x.attach_grad()
    with mx.autograd.record(train_mode=train):
        out = net(x)
        loss = (out * mx.nd.cos(mx.nd.arange(out.size, dtype=dtype).reshape(out.shape))).mean()
    loss.backward()
    found = {"output": out.asnumpy(), "gradient of the input": x.grad.asnumpy()}
    for name, p in parameters.items():
        if p.grad_req != "null":
            found[f"gradient of {name}"] = p.grad().asnumpy()
        else:
            found[name] = p.data().asnumpy()
    return {k: v.astype(np.float64) for k, v in found.items()}


def near(what: str, got: dict, want: dict, dtype: str) -> None:
    largest = max(
        (np.abs(v[np.isfinite(v)]).max(initial=0) for k, v in want.items() if "gradient" in k),
        default=0.0,
    )
    head = 1 / max(want["output"].size, 1)  # the size of what backward starts with
    for name, w in want.items():
        g = got[name]
        assert g.shape == w.shape, f"{what}: {name}: shape {g.shape}, not {w.shape}"
        if dtype == "float16" and not np.isfinite(w).all():
            continue  # an overflow comes earlier or later in another order
        scale = np.abs(w[np.isfinite(w)]).max(initial=0)
        scale = max(scale, max(largest, head) * 0.1 if "gradient" in name else 0, 1e-6)
        near = np.isclose(g, w, rtol=0, atol=TOLERANCE[dtype] * scale, equal_nan=True)
        assert near.all(), (
            f"{what}: {name} at {np.argwhere(~near)[:3].tolist()}: {g[~near][:5]}, eager has "
            f"{w[~near][:5]}"
        )


# ---- cases ---------------------------------------------------------------------------------------

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softrelu", "softsign")
ANYWHERE = (
    "nn.Activation({act!r})",
    "nn.LeakyReLU(0.2)",
    "nn.ELU()",
    "nn.SELU()",
    "nn.GELU()",
    "nn.Swish()",
    "nn.HybridLambda(lambda F, x: F.clip(x, -2.0, 2.0) * 1.5)",
    "nn.HybridLambda(lambda F, x: F.softmax(x, axis=-1))",
    "nn.HybridLambda(lambda F, x: F.broadcast_div(x, F.sum(x * x, axis=-1, keepdims=True) + 1))",
    "nn.HybridLambda(lambda F, x: F.square(x) * 0.3)",
)
PICTURES = (
    "nn.Conv2D({n}, 3, padding=1, activation={act!r})",
    "nn.Conv2D({n}, 1, use_bias=False)",
    "nn.Conv2D({n}, ({k}, 3), padding=({k2}, 1), strides=(1, {s}))",
    "nn.Conv2D({n}, 3, padding={d}, dilation={d})",
    "nn.Conv2D(4, 3, padding=1, groups=2, in_channels=4)",
    "nn.Conv2DTranspose({n}, 3, padding=1)",
    "nn.BatchNorm()",
    "nn.BatchNorm(scale=False)",
    "nn.InstanceNorm()",
    "nn.LayerNorm()",
    "nn.MaxPool2D(3, 1, 1)",
    "nn.AvgPool2D(2, {s}, 1)",
    "nn.HybridLambda(lambda F, x: F.UpSampling(x, scale=2, sample_type='nearest'))",
    "nn.HybridLambda(lambda F, x: F.transpose(x, (0, 1, 3, 2)))",
    "nn.HybridLambda(lambda F, x: F.LRN(x, nsize=3))",
)
SEQUENCES = (
    "nn.Dense({n}, flatten=False, activation={act!r})",
    "nn.LayerNorm()",
    "rnn.LSTM({n}, num_layers={d})",
    "rnn.GRU({n}, bidirectional={flag})",
    "rnn.RNN({n}, activation='tanh')",
    "Unrolled(rnn.LSTMCell({n}), {t})",
    "Unrolled(rnn.GRUCell({n}), {t})",
    "Unrolled(rnn.RNNCell({n}), {t})",
    "nn.HybridLambda(lambda F, x: F.batch_dot(F.softmax(F.batch_dot(x, x, transpose_b=True)), x))",
    "nn.HybridLambda(lambda F, x: F.SequenceReverse(x))",
)
ROWS = (
    "nn.Dense({n}, activation={act!r})",
    "nn.Dense({n}, use_bias=False)",
    "nn.BatchNorm()",
    "nn.LayerNorm()",
    "nn.HybridLambda(lambda F, x: F.L2Normalization(x + 0.1))",
    "nn.HybridLambda(lambda F, x: F.concat(x, -x, dim=1))",
    "nn.HybridLambda(lambda F, x: F.reverse(x, axis=1))",
)
PERCEPTRONS = (  # what the fused products of dense layers are made from
    "nn.Dense({n}, activation={act!r})",
    "nn.Dense({n})",
    "nn.Dense({n}, use_bias=False, activation={act!r})",
    "nn.Dense({n}, activation={act!r}, flatten=False)",
    "nn.Dense({m}), Affine({n}, {m})",
)
FAMILIES = {
    "pictures": PICTURES,
    "sequences": SEQUENCES,
    "rows": ROWS,
    "perceptrons": PERCEPTRONS,
}
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257)


def layer(rng, family: str, steps: int, depth: int) -> str:
    if depth and rng.random() < 0.2:
        parts = [layer(rng, family, steps, depth - 1) for _ in range(2)]
        if rng.random() < 0.5:
            same = rng.choice(ANYWHERE).format(act=rng.choice(ACTIVATIONS))
            return f"Residual({same}, {rng.choice(ANYWHERE).format(act=rng.choice(ACTIVATIONS))})"
        if rng.random() < 0.5:
            same = "nn.Activation('tanh')" if family == "pictures" else "nn.LayerNorm()"
            return f"Gate(nn.GELU(), {same})"
        if family in ("rows", "perceptrons"):
            return f"Join({', '.join(parts)})"
        if family == "pictures":
            return f"Join(nn.Conv2D(2, 3, padding=1), nn.Conv2D({rng.randint(1, 5)}, 1))"
        return f"Join(nn.Dense(3, flatten=False), rnn.GRU({rng.randint(1, 5)}), axis=2)"
    pool = FAMILIES[family] if rng.random() < 0.7 else ANYWHERE
    k = rng.choice((1, 3, 5))
    wide = family in ("rows", "perceptrons") or (family == "pictures" and rng.random() < 0.1)
    return rng.choice(pool).format(
        n=rng.choice(WIDTHS if wide else WIDTHS[:11]),
        m=rng.choice(WIDTHS),
        act=rng.choice(ACTIVATIONS),
        k=k,
        k2=k // 2,
        s=rng.choice((1, 1, 2)),
        d=rng.choice((1, 2)),
        t=steps,
        flag=rng.random() < 0.5,
    )


def script(rng: random.Random, *_) -> tuple[str, str]:
    family = rng.choice(tuple(FAMILIES))
    steps = rng.randint(2, 5)
    shape = {
        "pictures": (rng.choice((1, 2, 3)), rng.choice((1, 2, 3, 4)), *(rng.randint(4, 9),) * 2),
        "sequences": (steps, rng.choice((1, 2, 5)), rng.choice((1, 3, 8))),
        "rows": (rng.choice((1, 2, 5, 16)), rng.choice((1, 3, 8, 33))),
        "perceptrons": (rng.choice(WIDTHS), rng.choice(WIDTHS)),
    }[family]
    lines = ["from tests.fuzz.nets import *", "", "net = nn.HybridSequential()"]
    for _ in range(rng.randint(1, 6)):
        lines.append(f"net.add({layer(rng, family, steps, 2)})")
    dtype = rng.choice(("float32", "float32", "float64", "float64", "float16"))
    recompute = rng.choice((None, None, None, True, "mirror", 0.5, "blocks"))
    others = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        batch = family != "sequences"  # the axis that may have another length
        other = tuple(
            rng.choice((1, 2, 3, 8)) if i == (not batch) else n for i, n in enumerate(shape)
        )
        others.append(
            (
                rng.choice((shape, other)),
                rng.choice((dtype, "float32", "float64")),
                rng.random() < 0.8,
            )
        )
    lines.append(
        f"compare(net, {shape}, {dtype!r}, seed={rng.randrange(1000)}, recompute={recompute!r}, "
        f"train={rng.random() < 0.8}, others={others})"
    )
    return f"{family} {dtype}", "\n".join([*lines, ""])

"""Random programs against NumPy: one text is run by both. Values are shared, written in place, seen
through views, copied between devices; half of the programs are recorded and differentiated.

Every value is a square matrix of one size in a list `r`, so that any line may go and the rest still
runs.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import numpy as np
import plait as mx

from . import worker

# ---- what scripts call ---------------------------------------------------------------------------

STEP = 1e-5  # of central differences


class Arrays:
    """The functions that a program calls, on plait's arrays."""

    concat = staticmethod(lambda a, b, axis: mx.nd.concat(a, b, dim=axis))

    @staticmethod
    def on(where, x):
        """x on cpu(where), or beside the array `where`."""
        return x.as_in_context(mx.cpu(where) if isinstance(where, int) else where.context)

    def __getattr__(self, name: str):
        return getattr(mx.nd, name)


class Numpy:
    """The same on NumPy's."""

    on = staticmethod(lambda where, x: x)
    dot = staticmethod(np.matmul)
    exp, tanh, square, sin = np.exp, np.tanh, np.square, np.sin
    relu = staticmethod(lambda x: np.maximum(x, 0))
    sigmoid = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    maximum, where = np.maximum, np.where
    transpose = staticmethod(lambda x: x.T.copy())
    concat = staticmethod(lambda a, b, axis: np.concatenate([a, b], axis))
    slice_axis = staticmethod(
        lambda x, axis, begin, end: (x[begin:end] if axis == 0 else x[:, begin:end]).copy()
    )
    sum = staticmethod(lambda x, axis, keepdims: x.sum(axis=axis, keepdims=keepdims))
    broadcast_add, broadcast_mul = np.add, np.multiply

    @staticmethod
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True)) if x.size else x
        return e / e.sum(-1, keepdims=True)


def starts(n: int, count: int, seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, n, n)))


def hold(program: Callable, n: int, count: int, seed: int, way: str, devices: int) -> None:
    """program(F, r) changes the list r alike on both. way: "writes", or "eager", "hybridized" or
    "compiled", where r[0] of a pure program is differentiated by every start. Raises
    AssertionError: what NumPy computes is not refused."""
    try:
        _hold(program, n, count, seed, way, devices)
    except mx.MXNetError as error:
        raise AssertionError(f"{way}: it is refused: {error}") from error


def _hold(program, n, count, seed, way, devices) -> None:
    given = starts(n, count, seed)
    want = [x.copy() for x in given]
    with np.errstate(all="ignore"):
        program(Numpy, want)
    arrays = [mx.nd.array(x, mx.cpu(i % devices), "float64") for i, x in enumerate(given)]
    if way == "writes":
        program(Arrays(), arrays)
        for i, (got, w) in enumerate(zip(arrays, want)):
            near(f"value {i}", got.asnumpy(), w)
        return
    _differentiate(program, given, arrays, want[0], way, seed)


class Net(mx.gluon.HybridBlock):
    """A program as a block."""

    def __init__(self, program):
        super().__init__()
        self.program = program

    def hybrid_forward(self, F, *xs):  # noqa: N803 - Gluon's name
        r = list(xs)
        functions = Arrays() if F is mx.nd else Symbols(F)
        self.program(functions, r)
        return r[0]


class Symbols(Arrays):
    on = staticmethod(lambda where, x: x)  # a graph lies on one device

    def __init__(self, namespace):
        self.namespace = namespace
        self.concat = lambda a, b, axis: namespace.concat(a, b, dim=axis)

    def __getattr__(self, name: str):
        return getattr(self.namespace, name)


def _differentiate(program, given, arrays, want, way: str, seed: int) -> None:
    hybrid = way != "eager"
    if hybrid:
        arrays = [a.as_in_context(mx.cpu(0)) for a in arrays]
    for a in arrays:
        a.attach_grad()
    net = Net(program)
    net.hybridize(hybrid)
    for _ in range(3 if way == "compiled" else 1):
        if hybrid:
            _in_float32(net, given, want)
        with mx.autograd.record():
            if hybrid:
                out = net(*arrays)
            else:
                r = list(arrays)
                program(Arrays(), r)
                out = r[0]
            head = (out * out).sum()
        if out._tape is None:
            return
        head.backward()
        near(f"{way}: value", out.asnumpy(), want)
        rng = np.random.default_rng(seed + 1)
        u = [rng.normal(size=x.shape) for x in given]
        got = sum(float((a.grad.asnumpy() * d).sum()) for a, d in zip(arrays, u))
        up, here, down = (_value(program, given, u, t) for t in (STEP, 0.0, -STEP))
        slope, curve = (up - down) / (2 * STEP), abs(up + down - 2 * here) / STEP
        up, down = (_value(program, given, u, t) for t in (STEP / 2, -STEP / 2))
        change = max(curve, 100 * abs(slope - (up - down) / STEP))  # large beside kinks
        if np.isfinite(slope) and abs(slope) < 1e6 and change < 1e-2 * (1 + abs(slope)):
            near_by = (  # shorter steps: over fewer kinks, with more rounding
                (_value(program, given, u, t) - _value(program, given, u, -t)) / (2 * t)
                for t in (STEP, STEP / 10, STEP / 100)
            )
            assert any(abs(got - s) <= 1e-4 * (1 + abs(s)) for s in near_by), (
                f"{way}: gradient: {got} by backward, {slope} by differences"
            )
        if way == "compiled" and not worker.compiled():
            return


def _in_float32(net, given, want) -> None:
    """The same net called with arrays of another dtype, recorded or not: what is cached for one
    signature does not serve another."""
    narrow = [x.astype(np.float32) for x in given]
    with np.errstate(all="ignore"):
        net.program(Numpy, r := list(narrow))
        rounding = np.abs(r[0] - want)
    for recorded in (False, True):
        arrays = [mx.nd.array(x, dtype="float32") for x in narrow]
        for a in arrays:
            a.attach_grad()
        with mx.autograd.record() if recorded else contextlib.nullcontext():
            out = net(*arrays)
            head = (out * out).sum()
        assert out.dtype == np.float32, f"float32: a result in {out.dtype}"
        if out._tape is not None:
            head.backward()
            assert all(a.grad.dtype == np.float32 for a in arrays)
        near(
            "float32: value",
            out.asnumpy(),
            want,
            1e-4,
            100 * np.nan_to_num(rounding).max(initial=0),
        )


def _value(program, given, u, t: float) -> float:
    r = [x + t * d for x, d in zip(given, u)]
    with np.errstate(all="ignore"):
        program(Numpy, r)
    return float((r[0] * r[0]).sum())


def near(what: str, got: np.ndarray, want: np.ndarray, relative=1e-9, rounding=0.0) -> None:
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    with np.errstate(all="ignore"):
        scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        near_zero = relative * scale + rounding
        close = np.isclose(got, want, rtol=100 * relative, atol=near_zero, equal_nan=True)
        # sums of huge numbers depend on their order
        close |= ~(np.abs(want) < (1e100 if got.dtype == np.float64 else 1e15))
    assert close.all(), f"{what}:\n{got}\n{want}"


# ---- cases ---------------------------------------------------------------------------------------

PURE = (
    "F.tanh({a})",
    "F.sigmoid({a})",
    "F.relu({a})",
    "F.sin(F.tanh({a}) * 3)",  # of a huge number it says nothing
    "F.square({a}) * 0.1",
    "F.softmax({a})",
    "F.transpose({a})",
    "-{a}",
    "{a} + {b}",
    "{a} * {b}",
    "{a} - {b}",
    "{a} / (1.5 + F.square({b}))",
    "{a} * 0.5 + 1",
    "2 - {a}",
    "F.maximum({a}, {b})",
    "F.dot({a}, {b}) * 0.2",
    "F.where({a} > {b}, {a}, {b})",
    "F.broadcast_add({a}, F.sum({b}, axis=0, keepdims=True))",
    "F.broadcast_mul({a}, F.sum({b}, axis=1, keepdims=True)) * 0.2",
    "F.concat(F.slice_axis({a}, axis=0, begin=0, end={k}), "
    "F.slice_axis({b}, axis=0, begin={k}, end={n}), axis=0)",
    "F.concat(F.slice_axis({a}, axis=1, begin=0, end={k}), "
    "F.slice_axis({b}, axis=1, begin={k}, end={n}), axis=1)",
)
WRITES = (
    "r[{i}][:] = F.on({di}, {a})",
    "r[{i}][{k}:] = F.on({di}, {a}[{k}:])",
    "r[{i}][:, {k}:] = F.on({di}, {a}[:, {k}:])",
    "r[{i}] += F.on({di}, {a})",
    "r[{i}] *= 0.5",
    "w = r[{i}][{k}:]; w -= F.on({di}, {a}[{k}:])",
    "w = r[{i}].reshape((-1,)); w *= 2.0",
    "w = r[{i}][0:{k}]; r[{j}] = r[{j}] * 1.0; w[:] = 3.0",
    "r[{i}] = r[{j}]",
    "r[{i}] = r[{i}] * 1.0",
    "r[{i}][::2] = 1.5",
    "r[{i}][::-1] = r[{i}] + 0.0",
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)


def script(rng: random.Random, *_) -> tuple[str, str]:
    n, count = rng.choice(SIZES), rng.randint(2, 5)
    way = rng.choice(("writes",) * 6 + ("eager",) * 4 + ("hybridized",) * 3 + ("compiled",))
    devices = rng.choice((1, 1, 2, 4))
    body = []
    for _ in range(rng.randint(1, 25)):
        i, j, a, b = (rng.randrange(count) for _ in range(4))
        k = rng.randint(0, n)
        if way == "writes" and rng.random() < 0.5:
            line = rng.choice(WRITES)
            line = line.format(i=i, j=j, k=k, di=f"r[{i}]", a=f"r[{a}]")
        else:
            d = rng.randrange(devices)
            line = rng.choice(PURE).format(a=f"F.on({d}, r[{a}])", b=f"F.on({d}, r[{b}])", k=k, n=n)
            line = f"r[{i}] = {line}"
        body.append("    " + line)
    lines = ["from tests.fuzz.graphs import hold", "", "", "def program(F, r):", "    pass", *body]
    seed = rng.randrange(1000)
    lines += [
        "",
        "",
        f"hold(program, n={n}, count={count}, seed={seed}, way={way!r}, devices={devices})",
        "",
    ]
    return way, "\n".join(lines)

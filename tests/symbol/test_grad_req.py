"""grad_req "add" of every operator record, on the tape and in an executor: a gradient is what it
was before plus all that "write" gives, summed here in float64. (MXNet adds up wrongly in many
operators: it cannot be asked.)"""

import numpy as np
import plait as mx
import pytest
import samples
from plait import autograd, nd
from plait.kernels.record import REGISTRY
from plait.kernels.traits import Eager
from plait.ndarray.invoke import invoke

STEPS = 2
CASES = [
    pytest.param(op, s, id=f"{name}-{i}")
    for name, op in REGISTRY.items()
    if name == op.name and op.grad is not None and not op.random and not op.has(Eager)
    if not op.grad.__qualname__.startswith(("first_order.", "no_grad"))
    for i, s in enumerate(op.samples[:1])
]


class Call:
    """A sample's inputs, heads for each step, and gradients to begin with; all of them drawn."""

    def __init__(self, op, sample):
        rng = np.random.default_rng(0)
        self.op = op
        self.attrs = {k: v for k, v in sample.attrs.items() if k != op.variadic_key}
        drawn = [samples.draw(rng, given) for given in sample.inputs]
        self.values = [nd.array(x, dtype=own or "float32") for x, own in drawn]
        with autograd.train_mode():
            outs = self.apply([a.copy() for a in self.values])
        self.heads = [
            [nd.array(rng.normal(size=o.shape)).astype(o.dtype) for o in outs] for _ in range(STEPS)
        ]
        self.begin = [nd.array(rng.normal(size=a.shape)) for a in self.values]

    def apply(self, arrays):
        outs = invoke(self.op, arrays, self.attrs)
        return outs if isinstance(outs, list) else [outs]

    def smooth(self) -> list[int]:
        return [i for i, a in enumerate(self.values) if a.dtype == np.float32 and a.shape]

    def on_the_tape(self, request: str, steps) -> list[np.ndarray]:
        grads = [g.copy() for g in self.begin]
        for heads in steps:
            arrays = [a.copy() for a in self.values]
            autograd.mark_variables(
                [arrays[i] for i in self.smooth()], [grads[i] for i in self.smooth()], request
            )
            with autograd.record():
                outs = self.apply(arrays)
            autograd.backward(outs, heads)
        return [grads[i].asnumpy() for i in self.smooth()]

    def in_an_executor(self, request: str, steps) -> list[np.ndarray]:
        names = [f"v{i}" for i in range(len(self.values))]
        symbol = mx.sym.symbol.apply(self.op, "node", [mx.sym.var(n) for n in names], self.attrs)
        args = {n: a.copy() for n, a in zip(names, self.values)}
        given = symbol.list_arguments()
        grads = {
            n: g.copy() for i, (n, g) in enumerate(zip(names, self.begin)) if i in self.smooth()
        }
        executor = symbol.bind(
            mx.cpu(),
            {n: args[n] for n in given},
            {n: g for n, g in grads.items() if n in given},
            request,
            {n: args[n] for n in symbol.list_auxiliary_states()},
        )
        for heads in steps:
            for n, a in zip(names, self.values):  # a state may have been written
                args[n][:] = a
            executor.forward(is_train=True)
            executor.backward(heads)
        return [
            executor.grad_dict[names[i]].asnumpy() if names[i] in given else None
            for i in self.smooth()
        ]


@pytest.mark.parametrize("op, sample", CASES)
@pytest.mark.parametrize("where", ["on_the_tape", "in_an_executor"])
def test_grad_req_add_sums_write_results(op, sample, where):
    call = Call(op, sample)
    run = getattr(call, where)
    written = [run("write", [heads]) for heads in call.heads]
    added = run("add", call.heads)
    for i, got, *parts in zip(call.smooth(), added, *written, strict=True):
        if got is not None:  # an auxiliary state has no gradient
            want = call.begin[i].asnumpy() + np.sum(parts, 0, dtype="float64")
            scale = np.abs(parts).max(initial=1)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * scale)

"""Matrix products: dot, batch_dot, FullyConnected."""
from __future__ import annotations

from math import prod

from ...engine.error import ShapeError
from ..record import Param, Type, operator, sample


def _dense_infer(ins, num_hidden, no_bias, flatten):
    x, w = ins[0], ins[1]
    rows, k = ((x.shape[0],), prod(x.shape[1:])) if flatten else (x.shape[:-1], x.shape[-1])
    if w.shape != (num_hidden, k):
        raise ShapeError("FullyConnected", f"weight must have shape (num_hidden, inputs) = {(num_hidden, k)}, "
                         f"got data {x.shape} and weight {w.shape}")
    if not no_bias and ins[2].shape != (num_hidden,):
        raise ShapeError("FullyConnected", f"bias must have shape (num_hidden,) = ({num_hidden},), got {ins[2].shape}")
    return [Type((*rows, num_hidden), x.dtype)]


def _dense_fill(ins, num_hidden, no_bias, flatten):
    ins = list(ins)
    if ins[0] is not None:
        x = ins[0]
        k = prod(x.shape[1:]) if flatten else x.shape[-1]
        ins[1] = ins[1] or Type((num_hidden, k), x.dtype)
        if not no_bias:
            ins[2] = ins[2] or Type((num_hidden,), x.dtype)
    return ins


def _dense_ref(xp, x, w, bias=None, *, num_hidden, no_bias, flatten):
    y = (x.reshape(x.shape[0], -1) if flatten else x) @ w.T
    return y if no_bias else y + bias


def _dense_grad(F, dys, xs, ys, num_hidden, no_bias, flatten):
    x, w, dy = xs[0], xs[1], F.reshape_to(dys[0], shape=(-1, num_hidden))
    x2 = F.reshape_to(x, shape=(-1, w.shape[1]))
    dx = F.reshape_to(F.dot(dy, w), shape=x.shape)
    return [dx, F.dot(dy, x2, transpose_a=True)] + ([] if no_bias else [F.sum(dy, axis=0)])


operator("FullyConnected", aliases=("_npx_fully_connected", "_sparse_FullyConnected"),
         inputs=("data", "weight", "bias"),
         input_names=lambda num_hidden, no_bias, flatten: ("data", "weight") + (() if no_bias else ("bias",)),
         params=(Param("num_hidden", "int"), Param("no_bias", "bool", False), Param("flatten", "bool", True)),
         infer=_dense_infer, fill=_dense_fill, ref=_dense_ref, grad=_dense_grad,
         samples=(sample((3, 4), (5, 4), (5,), num_hidden=5),
                  sample((3, 2, 2), (5, 4), num_hidden=5, no_bias=True),
                  sample((2, 3, 4), (5, 4), (5,), num_hidden=5, flatten=False)),
         doc="x . weight^T + bias. data (N, ...), weight (num_hidden, inputs), bias (num_hidden,).")

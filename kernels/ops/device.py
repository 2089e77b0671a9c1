"""The copy of an array to another device, as an operator: recorded, differentiated and placed."""

from __future__ import annotations

from ..record import Param, operator, sample
from ..traits import DeviceCopy, Eager


def _copy_now(call, inputs, out, ctx, source):
    (x,) = inputs
    if out is not None:
        return x.copyto(out)
    from ...engine.device import named  # here: the build reads records before there is a core

    return x.copyto(named(ctx)) if ctx else call("_copy", x)


operator(
    "_to_device",
    params=(Param("ctx", "context", ""), Param("source", "context", "")),
    infer=lambda ins, ctx, source: [ins[0]],
    ref=lambda xp, x, ctx, source: x,
    grad=lambda F, dys, xs, ys, ctx, source: [F._to_device(dys[0], ctx=source, source=ctx)],
    traits=(Eager(_copy_now), DeviceCopy()),
    samples=(sample((2, 3)), sample((0, 3))),
    doc="A copy of data on the device ctx, such as 'gpu(1)', from the device source; '': where data"
    " is.",
)

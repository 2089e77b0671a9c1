"""Recurrent layers by cuDNN: the calls of dnn_rnn.c, and what is launched around them.

While training, the operator's reserve holds y, and behind it cuDNN's own reserve; where that does
not fit in, our kernels run forward and backward. cuDNN's gradient overwrites its reserve, so it
gets a copy.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ...engine import cuda, ffi, lib
from ...engine.error import DeviceError
from ..cpu.layout import code
from ..native import Native
from .compile import CompileError
from .conv_plan import has_cudnn
from .launch import Argument, Buffer, Copy, Fill, Int64, Launch, Launches, Scratch
from .layout import THREADS, TYPES, blocks_for, ceil_div
from .matmul_plan import ALIGNMENT, LAUNCH_US, ScratchSpace, location, rounds_to_tf32

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # in the order of cudnnRNNMode_t
ARRAYS = (
    *("x", "parameters", "h", "c", "y", "last_h", "last_c", "lengths", "reserve"),
    *("dy", "dlast_h", "dlast_c", "dx", "dparameters", "dh", "dc"),
)
STEP_LAUNCHES = 2  # of a cell's step


def is_there() -> bool:
    """Is there a cuDNN with recurrent layers?"""
    return has_cudnn() and bool(lib.plk_cudnn_rnn_load((cuda.find("cudnn") or "").encode()))


class Rnn(NamedTuple):
    """An RNN by cuDNN: the fields of plk_cudnn_rnn, what runs where it does not serve, what is
    launched before and after."""

    fields: dict
    own: Native
    before: Launches
    after: Launches

    @property
    def steps(self) -> tuple:
        """What of it are launches of ours."""
        return (*self.own.params.steps, *self.before.steps, *self.after.steps)

    def on(self, device: int) -> tuple[Any, Any]:
        state = lib.plk_cudnn_rnn_new()
        if not state:
            raise MemoryError
        owners, launched = [ffi.gc(ffi.cast("void *", state), _free)], {}
        parts = {"before": self.before, "after": self.after, "otherwise": self.own.params}
        try:
            for name, part in parts.items():
                launched[name], owner = part.on(device)
                owners += [launched[name], owner]
        except CompileError as error:
            if self.fields["kind"] != lib.PLK_CUDNN_RNN_BACK:
                raise
            # the reference cannot stand in: it would take cuDNN's reserve for ours
            raise DeviceError(f"RNN: its gradient's kernels do not compile ({error})") from error
        run = ffi.addressof(lib, self.own.function)
        launched["otherwise"] = {"run": run, "params": launched["otherwise"]}
        return ffi.new("plk_cudnn_rnn *", {**self.fields, **launched, "state": state}), owners


def _free(state, free=lib.plk_cudnn_rnn_free, cast=ffi.cast) -> None:
    """At exit, too, when the names of this module are gone."""
    free(int(cast("uintptr_t", state)))


def forward(call: Any, own: Native, arrays: dict, reserve: int | None) -> Native:
    """call: a _Call of recurrent_plan. arrays: Buffers by the names of ARRAYS. reserve: the number
    of the reserve; None: inference."""
    scratch, kind, after = ScratchSpace(), lib.PLK_CUDNN_RNN_INFER, []
    if reserve is not None:
        kind, (at, y_bytes, _) = lib.PLK_CUDNN_RNN_TRAIN, _reserve(call)
        arrays = {**arrays, "reserve": Buffer(reserve, at)}
        after = [Copy(Buffer(reserve), arrays["y"], y_bytes)]
    return _native(call, own, kind, arrays, scratch, [_lengths(call, arrays, scratch)], after)


def backward(call: Any, own: Native, arrays: dict, reserve: int) -> Native:
    """As `forward`."""
    scratch, (at, _, nbytes) = ScratchSpace(), _reserve(call)
    lengths, copy = _lengths(call, arrays, scratch), scratch.take(nbytes)
    arrays |= {"y": Buffer(reserve), "reserve": copy}
    weights = sum(map(prod, call.lay.parameter_shapes())) * call.item
    # it adds to what is there
    before = [
        lengths,
        Copy(copy, Buffer(reserve, at), nbytes),
        Fill(arrays["dparameters"], weights),
    ]
    return _native(call, own, lib.PLK_CUDNN_RNN_BACK, arrays, scratch, before, [])


def _reserve(call) -> tuple[int, int, int]:
    """(where cuDNN's reserve begins in ours, bytes of y before it, bytes that it may have)."""
    lay = call.lay
    y_bytes = lay.steps * lay.batch * lay.directions * lay.hidden * call.item
    at = ceil_div(y_bytes, ALIGNMENT) * ALIGNMENT
    return at, y_bytes, sum(map(prod, lay.reserve_shapes(call.p))) * call.item - at


def _lengths(call, arrays: dict, scratch: ScratchSpace) -> Launch:
    """All steps of every sequence; into arrays["lengths"]."""
    lay = call.lay
    to = arrays["lengths"] = scratch.take_array("int32", lay.batch)
    arguments: list[Argument] = [Int64(lay.batch), Int64(1), to, Int64(lay.steps), Int64(0)]
    name, grid = f"arange<{TYPES['int32']}, int64_t>", blocks_for(lay.batch, THREADS)
    return Launch("fill.cu", name, grid, (THREADS,), arguments)


def _native(call, own, kind, arrays: dict[str, Buffer | Scratch], scratch, before, after) -> Native:
    lay = call.lay
    fields = {
        **{"kind": kind, "dtype": code(call.dtype), "tf32": rounds_to_tf32()},
        **{k: getattr(lay, k) for k in ("steps", "batch", "inputs", "hidden", "layers")},
        **{"mode": MODES.index(lay.mode), "directions": lay.directions},
        **{"workspace_at": scratch.nbytes, "reserve_bytes": _reserve(call)[2]},
        **{name: location(arrays.get(name)) for name in ARRAYS},
    }
    made = Rnn(fields, own, Launches(before, scratch.nbytes), Launches(after))
    us = LAUNCH_US * (STEP_LAUNCHES * lay.steps * len(lay.cells) + len(before) + len(after))
    return Native("plk_cudnn_rnn_run", made, us)

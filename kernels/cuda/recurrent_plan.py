"""Launches of the fused RNN and its gradient: all steps of a layer in one launch (recurrent.cu),
between products over all steps at once; or all layers by cuDNN (dnn_rnn.c). float32, float16,
bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from ...engine import cuda
from ..native import Native
from ..ops.recurrent_cells import GATES, SPARE, Layout, layout
from ..record import HALVES, Type
from ..spec import ITEM_BYTES
from . import recurrent_cudnn
from .launch import (
    Argument,
    Buffer,
    Fill,
    Float32,
    Float64,
    Int32,
    Int64,
    Launch,
    Scalar,
    Scratch,
    Struct,
)
from .layout import THREADS, TYPES, ceil_div
from .matmul_plan import NOWHERE, ScratchSpace, column_sums, grid_of, matmul, steps

KINDS = ("float32", *HALVES)
MODES = {"rnn_relu": "RNN_RELU", "rnn_tanh": "RNN_TANH", "lstm": "LSTM", "gru": "GRU"}
LENGTHS = {"int32": 1, "int64": 2, "float32": 3, "float64": 4}
WARPS, LINES, LANES = 8, 4, 32  # as recurrent.cu has them
MOST_HELD = 32  # words of a line in a lane
LIBRARY: bool | None = None  # benchmarks, tests: cuDNN where it can, or nowhere; None: by the rule


def at(place: Any, nbytes: int) -> Any:
    """The same array from a byte on."""
    return place._replace(offset_bytes=place.offset_bytes + nbytes)


class _Call:
    """One RNN: sizes, and where its arrays lie. numbers: of the inputs data, parameters, state,
    state_cell, sequence_length."""

    def __init__(
        self, x: Type, length: Type, attrs: dict[str, Any], p: float, numbers: dict[str, int]
    ):
        self.lay: Layout = layout(x.shape, **attrs)
        self.attrs, self.p, self.numbers = attrs, p, numbers
        self.dtype, self.scratch = x.dtype, ScratchSpace()
        self.item = ITEM_BYTES[x.dtype]
        self.length_kind = LENGTHS.get(length.dtype, -1) if attrs["use_sequence_length"] else 0
        lay = self.lay
        self.lines = lay.steps * lay.batch  # of all steps
        self.serves = (
            x.dtype in KINDS
            and 0 not in x.shape
            and not lay.projected
            and self.length_kind >= 0
            and self.lines * max(lay.rows, lay.directions * lay.hidden) < 1 << 31
        )
        shapes = lay.parameter_shapes()
        self.offsets = [sum(map(prod, shapes[:i])) * self.item for i in range(len(shapes))]

    def parameter(self, cell: int, which: int, number: int) -> Buffer:
        """i2h, h2h (0, 1), their biases (2, 3) of a cell, in a buffer like the parameters."""
        n = len(self.lay.cells)
        i = 2 * cell + which if which < 2 else 2 * n + 2 * cell + which - 2
        return Buffer(number, self.offsets[i])

    def weight(self, cell: int, which: int) -> Buffer:
        return self.parameter(cell, which, self.numbers["parameters"])

    def state(self, cell: int, name: str | int) -> Buffer:
        """The part of a cell in an array of states."""
        number = self.numbers[name] if isinstance(name, str) else name
        return Buffer(number, cell * self.lay.batch * self.lay.hidden * self.item)

    def block(self, cell: int, which: str, number: int) -> Any:
        """gates, extra or out of a cell, or mask of a layer, in the reserve."""
        lay = self.lay
        *shapes, _ = lay.reserve_shapes(self.p)
        n_masks = lay.layers - 1 if self.p > 0 else 0
        per_cell = (len(shapes) - n_masks) // len(lay.cells)
        first = n_masks + cell * per_cell
        place = {"mask": cell, "gates": first, "extra": first + 1, "out": first + per_cell - 1}
        if which == "extra" and per_cell < 3:
            return NOWHERE
        return Buffer(number, sum(map(prod, shapes[: place[which]])) * self.item)

    def spare(self, number: int) -> Buffer:
        """The last block of the reserve."""
        *shapes, _ = self.lay.reserve_shapes(self.p)
        return Buffer(number, sum(map(prod, shapes)) * self.item)

    def pair(self, make: Callable[[int], Any]) -> list:
        """Arrays of both directions; twice the first where there is one."""
        return [make(d) for d in range(self.lay.directions)] + [NOWHERE] * (2 - self.lay.directions)

    def floats(self, *shape: int) -> Scratch:
        return self.scratch.take_array("float32", *shape)

    def array(self, *shape: int) -> Scratch:
        return self.scratch.take_array(self.dtype, *shape)

    def length(self) -> Any:
        return Buffer(self.numbers["sequence_length"]) if self.length_kind else NOWHERE

    def sizes(self) -> list:
        lay = self.lay
        numbers = (lay.steps, lay.batch, lay.hidden, lay.directions, self.length_kind)
        return [*map(Int32, numbers)]

    def clip(self, with_nan: bool) -> list:
        low, high = self.attrs["lstm_state_clip_min"], self.attrs["lstm_state_clip_max"]
        nan = high if high is not None else low
        bounds = [-inf if low is None else low, inf if high is None else high]
        bounds += [nan or 0.0] if with_nan else []
        clips = nan is not None and 1 + bool(self.attrs["lstm_state_clip_nan"])
        return [*map(Float32, bounds), Int32(clips)]

    def matmul(self, m: int, n: int, k: int, a: Any, b: Any, y: Any, **more: Any) -> list:
        found = matmul(self.dtype, m, n, k, a, b, y, self.scratch, **more)
        if found is None:
            raise ValueError(f"a product of {m} x {k} x {n} is too large")
        return found

    def held(self, units: int, depth: int) -> int:
        """Words of each line of `depth` that a lane holds where a warp owns `units` of them for all
        steps; 0: they do not stay on chip."""
        held = 1
        while held * LANES < depth:
            held *= 2
        return held if held <= MOST_HELD and self.blocks(units) <= self.most_blocks() else 0

    def blocks(self, units: int) -> int:
        return ceil_div(self.lay.hidden, WARPS * units)

    def most_blocks(self) -> int:
        """Of a direction, all on the device at once."""
        return max(1, cuda.properties(0).n_multiprocessors // self.lay.directions)

    def forward_lines(self) -> tuple[int, int]:
        return 1 if GATES[self.lay.mode] > 1 else LINES, self.lay.hidden

    def backward_lines(self) -> tuple[int, int]:
        return LINES, self.lay.rows

    def by_library(self, train: bool) -> bool:
        """Does cuDNN run it, all layers and steps, where it is installed? Forward and backward must
        agree: only what wrote a reserve can read it."""
        lay, low, high = self.lay, *(self.attrs[f"lstm_state_clip_{k}"] for k in ("min", "max"))
        plain = not self.length_kind and low is None and high is None
        plain = plain and (self.p == 0 or lay.layers == 1) and recurrent_cudnn.is_there()
        if not plain or LIBRARY is not None:
            return plain and bool(LIBRARY)
        stays = self.held(*self.forward_lines()) and (
            not train or self.held(*self.backward_lines())
        )
        return not stays

    def stay(
        self, function: str, lines: tuple[int, int], struct: Struct, barrier: Buffer | Scratch
    ) -> list:
        """The launch whose blocks wait for each other. lines: (units, depth), as held has them."""
        lay, held = self.lay, self.held(*lines)
        name = f"{function}<{TYPES[self.dtype]}, {MODES[lay.mode]}, {held}>"
        grid = (min(self.blocks(lines[0]), self.most_blocks()), lay.directions)
        block = (WARPS * LANES,)
        together = prod(grid) > 1
        launch = Launch("recurrent.cu", name, grid, block, [struct], together=together)
        return [Fill(barrier, 4), launch]

    def mask(self, layer: int, number: int, n: int) -> Launch:
        """Draws a dropout mask into the reserve."""
        arguments = [self.block(layer - 1, "mask", number), Int64(n), Float64(self.p)]
        arguments += [Scalar(0, "uint64"), Scalar(1, "uint64"), Int32(layer)]
        name = f"draw_mask<{TYPES[self.dtype]}>"
        return Launch("random.cu", name, grid_of(n, 4 * THREADS), (THREADS,), arguments)

    def masked(self, x: Argument, mask: Argument, y: Argument, n: int) -> Launch:
        name = f"masked<{TYPES[self.dtype]}>"
        arguments = [x, mask, y, Int64(n)]
        return Launch("recurrent.cu", name, grid_of(n), (THREADS,), arguments)


def forward(ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any]) -> Native | None:
    train, lstm = bool(attrs["train"]), attrs["mode"] == "lstm"
    numbers = {"parameters": 1, "state": 2, "state_cell": 3, "sequence_length": len(ins) - 1}
    call = _Call(ins[0], ins[-1], attrs, attrs["p"] if train else 0.0, numbers)
    if not call.serves:
        return None
    lay, first = call.lay, len(ins)
    found: list[Any] = []
    y, reserve = Buffer(first), first + len(outs) - 1
    shows = bool(attrs["state_outputs"])
    width, n_states = lay.directions * lay.hidden, lay.batch * lay.hidden
    pre = [call.array(call.lines, lay.rows) for _ in range(lay.directions)]
    state = call.pair(lambda d: call.floats(2, n_states))
    cell = call.pair(lambda d: call.floats(n_states) if lstm else NOWHERE)
    between = [call.array(call.lines, width) for _ in range(min(2, lay.layers - 1))]
    barrier, k = call.scratch.take(4), lay.inputs
    x: Any = Buffer(0)
    for layer in range(lay.layers):
        last = layer == lay.layers - 1
        if layer and call.p > 0:
            n, mask = call.lines * width, call.block(layer - 1, "mask", reserve)
            found += [call.mask(layer, reserve, n), call.masked(x, mask, x, n)]
        i = layer * lay.directions
        for d in range(lay.directions):
            w, b = call.weight(i + d, 0), call.weight(i + d, 2)
            sizes = (call.lines, lay.rows, k)
            found += call.matmul(*sizes, x, w, pre[d], transpose_b=True, bias=b)
        out = y if last else between[layer % 2]

        def kept(which):
            return call.pair(lambda d: call.block(i + d, which, reserve) if train else NOWHERE)

        def final(number, there):
            return call.pair(lambda d: call.state(i + d, number) if there else NOWHERE)

        struct = Struct(
            call.pair(pre.__getitem__),
            call.pair(lambda d: call.weight(i + d, 1)),
            call.pair(lambda d: call.weight(i + d, 3)),
            final("state", True),
            final("state_cell", lstm),
            *(kept(which) for which in ("gates", "extra", "out")),
            final(first + 1, shows),
            final(first + 2, shows and lstm),
            *(out, state, cell, call.length(), barrier),
            *call.sizes(),
            *call.clip(True),
        )
        found += call.stay("recurrent", call.forward_lines(), struct, barrier)
        x, k = out, width
    if train:
        found.append(Fill(call.spare(reserve), SPARE * call.item))
    own = steps(found, call.scratch)
    if own is None or not call.by_library(train):
        return own
    arrays = {"x": Buffer(0), "parameters": Buffer(1), "h": Buffer(2), "y": y}
    arrays |= {"c": Buffer(3)} if lstm else {}
    arrays |= {"last_h": Buffer(first + 1)} if shows else {}
    arrays |= {"last_c": Buffer(first + 2)} if shows and lstm else {}
    return recurrent_cudnn.forward(call, own, arrays, reserve if train else None)


def backward(
    ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any], at_x: int
) -> Native | None:
    """at_x: number of the data among the inputs."""
    lstm = attrs["mode"] == "lstm"
    first = len(ins)
    numbers = {"parameters": at_x + 1, "state": at_x + 2, "state_cell": at_x + 3}
    numbers["sequence_length"] = len(ins) - 2
    call = _Call(ins[at_x], ins[-2], attrs, attrs["p"], numbers)
    if not call.serves:
        return None
    lay, reserve, found, small = call.lay, first - 1, [], call.dtype != "float32"
    n, width, lines = lay.hidden, lay.directions * lay.hidden, call.lines
    two = lay.mode == "gru"
    dz = call.pair(lambda d: call.floats(lines, lay.rows))
    dzu = call.pair(lambda d: call.floats(lines, lay.rows)) if two else dz
    before = call.pair(lambda d: call.floats(lines, n))
    dh = call.pair(lambda d: call.floats(lay.batch, n))
    dc = call.pair(lambda d: call.floats(lay.batch, n) if lstm else NOWHERE)
    rounded = [call.array(lines, max(lay.rows, n)) for _ in range(2)] if small else []
    below = call.array(lines, width) if lay.layers > 1 else None
    grads = [call.array(lines, width) for _ in range(min(2, lay.layers - 1))]
    barrier = call.scratch.take(4)
    dy: Any = Buffer(0)

    def as_small(x, size: int, place: int):
        """x in the type of products."""
        if not small:
            return x
        name = f"cast<{TYPES[call.dtype]}, float>"
        arguments = [x, rounded[place], Int64(size)]
        found.append(Launch("recurrent.cu", name, grid_of(size), (THREADS,), arguments))
        return rounded[place]

    for layer in reversed(range(lay.layers)):
        i, k = layer * lay.directions, lay.inputs
        x: Any = Buffer(at_x)
        mask = call.block(layer - 1, "mask", reserve) if layer and call.p > 0 else None

        def cells(make, there=True):
            return call.pair(lambda d: make(i + d) if there else NOWHERE)

        struct = Struct(
            cells(lambda c: call.weight(c, 1)),
            cells(lambda c: call.state(c, "state")),
            cells(lambda c: call.state(c, "state_cell"), lstm),
            *(cells(lambda c: call.block(c, w, reserve)) for w in ("gates", "extra", "out")),
            cells(lambda c: call.state(c, 1)),
            cells(lambda c: call.state(c, 2), lstm),
            *(dy, dz, dzu, before, dh, dc),
            cells(lambda c: call.state(c, first + 2)),
            cells(lambda c: call.state(c, first + 3), lstm),
            *(call.length(), barrier),
            *call.sizes(),
            *call.clip(False),
        )
        found += call.stay("recurrent_backward", call.backward_lines(), struct, barrier)
        if layer:
            x, k = below, width
            for d in range(lay.directions):
                out = call.block(i - lay.directions + d, "out", reserve)
                sizes = [*map(Int32, (n, width, d * n)), Int64(lines)]
                arguments = [out, mask or NOWHERE, x, *sizes]
                name = f"beside<{TYPES[call.dtype]}>"
                grid = grid_of(lines * n)
                found.append(Launch("recurrent.cu", name, grid, (THREADS,), arguments))
        dx = grads[(layer - 1) % 2] if layer else Buffer(first)
        for d in range(lay.directions):
            target = [call.parameter(i + d, j, first + 1) for j in range(4)]
            g = as_small(dz[d], lines * lay.rows, 0)
            found += call.matmul(lay.rows, k, lines, g, x, target[0], transpose_a=True)
            found.append(column_sums(call.dtype, g, target[2], lines, lay.rows))
            w = call.weight(i + d, 0)
            found += call.matmul(lines, k, lay.rows, g, w, dx, residual=dx if d else None)
            g = as_small(dzu[d], lines * lay.rows, 0) if two else g
            h = as_small(before[d], lines * n, 1)
            found += call.matmul(lay.rows, n, lines, g, h, target[1], transpose_a=True)
            found.append(column_sums(call.dtype, g, target[3], lines, lay.rows))
        if mask:
            found.append(call.masked(dx, mask, dx, lines * width))
        dy = dx
    own = steps(found, call.scratch)
    if own is None or not call.by_library(True):
        return own
    names: tuple[tuple[str, ...], ...] = (
        ("dy", "dlast_h", "dlast_c"),
        ("x", "parameters", "h", "c"),
        ("dx", "dparameters", "dh", "dc"),
    )
    arrays: dict[str, Any] = {}
    for those, number in zip(names, (0, at_x, first)):
        arrays |= {k: Buffer(number + i) for i, k in enumerate(those[: None if lstm else -1])}
    return recurrent_cudnn.backward(call, own, arrays, reserve)

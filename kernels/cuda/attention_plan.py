"""Launches of attention: float32, float16, bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..native import Native
from ..ops.attention import LONGEST, kept_scale, mask_sizes, operands
from ..record import HALVES, Type
from ..spec import ITEM_BYTES
from .launch import STREAM, Argument, Buffer, Fill, Float32, Float64, Int32, Int64, Launch, Struct
from .layout import THREADS, TYPES, blocks_for, ceil_div
from .matmul_plan import NOWHERE, ScratchSpace, grid_of, steps

MASKS = {None: "MASK_NONE", "add": "MASK_ADD", "where": "MASK_WHERE", "length": "MASK_LENGTH"}
KINDS = ("float32", *HALVES)
LENGTHS = ("int32", "int64")
WIDTHS = (32, 64, 128, 256)  # of tiles


def _view(buffer: Buffer, batch: int, head: int, row: int) -> Struct:
    return Struct(buffer, *map(Int64, (batch, head, row)))


class _Call:
    """What forward and backward share. at: number of the first source among the inputs."""

    def __init__(self, sources: Sequence[Type], attrs: dict[str, Any], at: int):
        self.sources, self.attrs, self.at = sources, attrs, at
        batch, heads, n_q, n_k, dim, dim_v = attrs["sizes"]
        self.dtype, self.scale = sources[0].dtype, attrs["scale"]
        self.p = attrs.get("p", 0.0)
        n, mask = attrs["n_sources"], attrs["mask"]
        self.mask_dtype = sources[n].dtype if mask else self.dtype
        same = all(t.dtype == self.dtype for t in sources[:n])
        fits = self.mask_dtype in (LENGTHS if mask == "length" else KINDS)
        self.serves = (
            self.dtype in KINDS
            and same
            and fits
            and 0 < min(attrs["sizes"])
            and max(dim, dim_v) <= LONGEST
            and batch * heads * max(n_q, n_k) < 1 << 31
        )
        self.width = next((w for w in WIDTHS if w >= max(dim, dim_v)), 0)
        wide = self.dtype == "float32"
        self.rows = 32 if wide and self.width == 256 else 64
        self.step = self.width + 16 // ITEM_BYTES[self.dtype]

    def columns(self, backward: bool) -> int:
        wide = self.dtype == "float32"
        if self.width == 256:
            return 16 if wide else 32
        return 32 if wide or backward or self.width == 128 else 64

    def operand(self, name: str, gradient: int | None = None) -> Struct:
        """q, k or v; or where its gradient goes: number of the first output."""
        source, at, *place = self.attrs[name]
        first = self.at if gradient is None else gradient
        return _view(Buffer(first + source, at * ITEM_BYTES[self.dtype]), *place)

    def result(self, number: int) -> Struct:
        """y or dy."""
        _, heads, n_q, _, _, dim_v = self.attrs["sizes"]
        if self.attrs["heads_first"]:
            return _view(Buffer(number), heads * n_q * dim_v, n_q * dim_v, dim_v)
        return _view(Buffer(number), n_q * heads * dim_v, dim_v, heads * dim_v)

    def mask(self) -> Struct:
        if not self.attrs["mask"]:
            return Struct(NOWHERE, *map(Int64, (0, 0, 0, 0)), Float32(0.0))
        at, *place = self.attrs["mask_view"]
        number = self.at + self.attrs["n_sources"]
        if len(mask_sizes(**self.attrs)) == 3:
            place = [*place[:3], 0]
        return Struct(
            Buffer(number, at * ITEM_BYTES[self.mask_dtype]),
            *map(Int64, place),
            Float32(self.attrs["mask_value"]),
        )

    def lengths(self) -> Struct:
        return Struct(*map(Int32, self.attrs["sizes"][1:]), Float32(self.scale))

    def kept(self, buffer: Buffer) -> tuple[Argument, Float32]:
        """The bits of what dropout keeps, in an array if there is one, and the scale."""
        return buffer if self.p else NOWHERE, Float32(kept_scale(self.p))

    def types(self, *numbers: int) -> str:
        mask, drops = MASKS[self.attrs["mask"]], "true" if self.p else "false"
        names = (TYPES[self.dtype], TYPES[self.mask_dtype], mask, self.width, drops)
        return ", ".join(map(str, (*names, *numbers)))

    def launch(
        self, function: str, n_rows: int, tile_rows: int, arguments: Sequence[Argument]
    ) -> Launch:
        batch, heads = self.attrs["sizes"][:2]
        grid = (ceil_div(n_rows, self.rows) * heads * batch,)
        shared = tile_rows * self.step * ITEM_BYTES[self.dtype]
        return Launch("attention.cu", function, grid, (2 * self.rows,), arguments, shared)


def forward(ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any]) -> Native | None:
    call, n = _Call(ins, attrs, 0), len(ins)
    if not call.serves:
        return None
    columns = call.columns(False)
    bits = Buffer(n + 2)
    arguments = [*(call.operand(x) for x in "qkv"), call.mask(), *call.kept(bits), call.result(n)]
    arguments += [Buffer(n + 1), call.lengths()]
    name = f"attention<{call.types(call.rows, columns)}>"
    rows = call.rows + 2 * columns
    found = [call.launch(name, attrs["sizes"][2], rows, arguments)]
    if call.p:
        n_words, n_k = prod(outs[2].shape), Int32(attrs["sizes"][3])
        arguments = [bits, Int64(n_words), n_k, Float64(call.p), *STREAM]
        grid = blocks_for(n_words, THREADS)
        found.insert(0, Launch("attention.cu", "draw_kept", grid, (THREADS,), arguments))
    return steps(found, ScratchSpace())


def backward(
    ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any], at: int
) -> Native | None:
    """at: number of the first source among the inputs."""
    call, views, n = _Call(ins[at:], attrs, at), operands(**attrs), attrs["n_sources"]
    if not call.serves or ins[2].dtype != "float32":
        return None
    batch, heads, n_q, n_k, _, _ = attrs["sizes"]
    scratch, first, dtype = ScratchSpace(), len(ins), call.dtype
    covered = [sum(prod(v[2]) for v in views if v[0] == i) for i in range(n)]
    found: list[Fill | Launch] = [
        Fill(Buffer(first + i), prod(t.shape) * ITEM_BYTES[dtype])
        for i, t in enumerate(outs[:n])
        if covered[i] != prod(t.shape)
    ]
    dot, dy, sums = scratch.take_array("float32", batch, heads, n_q), call.result(0), Buffer(2)
    size = batch * heads * n_q
    arguments = [dy, call.result(1), dot, call.lengths(), Int64(size)]
    name, grid = f"attention_dot<{TYPES[dtype]}>", grid_of(size, 8)
    found.append(Launch("attention.cu", name, grid, (256,), arguments))
    columns = call.columns(True)
    q, k, v = (call.operand(x) for x in "qkv")
    dq, dk, dv = (call.operand(x, first) for x in "qkv")
    rows = 2 * (call.rows + columns)

    def give(want, n_rows, x, x2, y, y2, dx, dx2):
        name = f"attention_backward<{call.types(call.rows, columns)}, {want}>"
        kept = call.kept(Buffer(3))
        arguments = [x, x2, y, y2, call.mask(), *kept, sums, dot, dx, dx2, call.lengths()]
        found.append(call.launch(name, n_rows, rows, arguments))

    give("WANT_QUERIES", n_q, q, dy, k, v, dq, dq)
    # the results of both do not fit the registers where rows are long
    wants = ["WANT_KEYS", "WANT_VALUES"] if call.width > 128 else ["WANT_KEYS | WANT_VALUES"]
    for want in wants:
        give(want, n_k, k, v, q, dy, dk, dv)
    return steps(found, scratch)

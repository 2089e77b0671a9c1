"""Launches: what a table entry of a GPU says about its kernels, and its form for the C core.

    return launches(
        Launch("softmax.cu", "softmax_rows<float, 4>", grid, block,
               [Buffer(0), Buffer(1), Int64(n), Float32(scale)]))

The arguments of a launch are laid out once, when the plan is made; the core fills in what is known
only at the call: buffers, scratch memory, dynamic parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine import ffi, lib
from ..loops.arguments import Buffer, Copy, Float32, Float64, Int32, Int64, Scalar, Scratch
from ..native import Native

MAX_ARGUMENT_BYTES = 4096  # what every CUDA driver takes
MAX_PARAMS = 256
STATIC_SHARED_BYTES = 48 << 10
MAX_GRID = (2**31 - 1, 65535, 65535)
POINTER = 8  # bytes

# dtype of a scalar -> (struct format, its number in C)
SCALARS = {
    "float32": ("f", lib.PL_SCALAR_FLOAT32),
    "float64": ("d", lib.PL_SCALAR_FLOAT64),
    "int32": ("i", lib.PL_SCALAR_INT32),
    "int64": ("q", lib.PL_SCALAR_INT64),
    "uint64": ("Q", lib.PL_SCALAR_UINT64),
}


# seed and call counter follow the dynamic parameters: of operators that have none, these are they
STREAM = (Scalar(0, "uint64"), Scalar(1, "uint64"))


class Bytes(NamedTuple):
    """A number of another type, as it lies in memory."""

    value: bytes


class Struct:
    """One parameter that is a C struct: its members in order, with the alignment of C. Members are
    arguments (a Buffer is a pointer, a Struct lies inside) or, for an array, lists of them."""

    def __init__(self, *members: Any):
        self.members = members


Argument = Buffer | Scratch | Scalar | Int32 | Int64 | Float32 | Float64 | Bytes | Struct
_VALUES: dict[type, str] = {Int32: "i", Int64: "q", Float32: "f", Float64: "d"}


class Launch(NamedTuple):
    """One kernel launch.

    Args:
        source: the name of a file of kernels/cuda/ ("softmax.cu"), or CUDA source text.
        function: name expression of a __global__ function in it ("softmax_rows<float, 4>").
        grid, block: up to three sizes. A grid with a 0 in it launches nothing.
        arguments: the function's arguments in order.
        shared_bytes: dynamic shared memory; beyond 48 KiB where the device allows it.
        defines: (name, value) pairs for the preprocessor.
        together: all blocks run at once (a cooperative launch), so that they may wait for each
            other; a grid that the device cannot hold fails.
        options: of the compiler, for source text; default: those of generated code.
    """

    source: str
    function: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Any]  # Argument
    shared_bytes: int = 0
    defines: tuple[tuple[str, str], ...] = ()
    together: bool = False
    options: tuple[str, ...] | None = None


class Fill(NamedTuple):
    """Sets `nbytes` bytes to `value` (0 ... 255)."""

    to: Buffer | Scratch
    nbytes: int
    value: int = 0


class Launches:
    """The launches of a call, in order, and the bytes of scratch memory that they share."""

    __slots__ = ("steps", "scratch_bytes")

    def __init__(self, steps: Sequence[Launch | Fill | Copy], scratch_bytes: int = 0):
        self.steps, self.scratch_bytes = tuple(s for s in steps if not _empty(s)), scratch_bytes

    def on(self, device: int) -> tuple[Any, Any]:
        """(C struct pl_launches, what it points into) for a device; compiles what is not compiled.

        Raises: MXNetError where a source does not compile or the compiler is missing; ValueError
        for sizes that no launch can have.
        """
        table: list[dict[str, Any]] = []
        offsets: list[int] = []
        patches: list[tuple[int, int, int, int, int]] = []
        data = bytearray()
        for step in self.steps:
            fields, block = _kernel(step, device) if isinstance(step, Launch) else _transfer(step)
            data += bytes(-len(data) % POINTER)
            fields |= {
                "n_params": len(block.offsets),
                "first_param": len(offsets),
                "n_arguments": len(block.patches),
                "first_argument": len(patches),
                "data_at": len(data),
                "data_bytes": len(block.data),
            }
            table.append(fields)
            offsets += block.offsets
            patches += block.patches
            data += block.data
        owner = (
            ffi.new("pl_launch[]", table or 1),
            ffi.new("int32_t[]", offsets or 1),
            ffi.new("pl_argument[]", patches or 1),
            ffi.new("char[]", bytes(data) or 1),
        )
        fields = {"n": len(table), "scratch_bytes": self.scratch_bytes}
        fields |= dict(zip(("launches", "offsets", "arguments", "data"), owner))
        return ffi.new("pl_launches *", fields), owner


def launches(
    *steps: Launch | Fill | Copy,
    scratch_bytes: int = 0,
    cost_us: float = 5.0,
    can_fail: bool = False,
    owner: Any = None,
) -> Native:
    """The kernel of a plan that consists of these steps, one after the other.

    cost_us: of enqueueing them all, on the host; a call cheaper than plan.INLINE_US is enqueued by
    the caller itself.
    """
    found = Launches(steps, scratch_bytes)
    return Native("pl_kernel_launch", found, cost_us, can_fail=can_fail, owner=owner)


def _empty(step: Launch | Fill | Copy) -> bool:
    return 0 in step.grid if isinstance(step, Launch) else step.nbytes == 0


class Block:
    """The arguments of one launch: constant bytes, where each parameter starts, and what the core
    puts in at the call, as (kind, index, at, type, offset_bytes)."""

    def __init__(self, arguments: Sequence[Argument]):
        self.data = bytearray()
        self.offsets: list[int] = []
        self.patches: list[tuple[int, int, int, int, int]] = []
        for a in arguments:
            self._align(_alignment(a))
            self.offsets.append(len(self.data))
            self._add(a)
        if len(self.data) > MAX_ARGUMENT_BYTES or len(self.offsets) > MAX_PARAMS:
            raise ValueError(f"a launch has {len(self.offsets)} arguments, {len(self.data)} bytes")

    def _align(self, alignment: int) -> None:
        self.data += bytes(-len(self.data) % alignment)

    def _add(self, a) -> None:
        if isinstance(a, Struct):
            for member in a.members:
                for item in member if type(member) in (list, tuple) else (member,):
                    self._align(_alignment(item))
                    self._add(item)
            self._align(_alignment(a))
            return
        at = len(self.data)
        if isinstance(a, Buffer):
            self.patches.append((lib.PL_ARGUMENT_BUFFER, a.index, at, 0, a.offset_bytes))
            self.data += bytes(POINTER)
        elif isinstance(a, Scratch):
            self.patches.append((lib.PL_ARGUMENT_SCRATCH, 0, at, 0, a.offset_bytes))
            self.data += bytes(POINTER)
        elif isinstance(a, Scalar):
            form, number = SCALARS[a.dtype]
            self.patches.append((lib.PL_ARGUMENT_SCALAR, a.index, at, number, 0))
            self.data += bytes(struct.calcsize(form))
        elif isinstance(a, Bytes):
            self.data += a.value
        else:
            self.data += struct.pack("=" + _VALUES[type(a)], a.value)


def _alignment(a) -> int:
    """Of an argument, or of the items of a list."""
    if isinstance(a, Struct):
        items = [x for m in a.members for x in (m if type(m) in (list, tuple) else (m,))]
        return max(map(_alignment, items), default=1)
    if isinstance(a, Buffer | Scratch):
        return POINTER
    if isinstance(a, Bytes):
        return len(a.value)
    return struct.calcsize(SCALARS[a.dtype][0] if isinstance(a, Scalar) else _VALUES[type(a)])


def _kernel(step: Launch, device: int) -> tuple[dict, Block]:
    from .compile import function

    grid, block = _three(step.grid), _three(step.block)
    handle = function(device, step.source, step.function, step.defines, step.options)
    if step.shared_bytes > STATIC_SHARED_BYTES:
        _allow_shared(device, handle, step)
    kind = lib.PL_LAUNCH_TOGETHER if step.together else lib.PL_LAUNCH_KERNEL
    fields = {"kind": kind, "function": handle, "grid": grid, "block": block}
    return fields | {"shared_bytes": step.shared_bytes}, Block(step.arguments)


def check_grid(step: Launch) -> None:
    """Raises ValueError for a grid that no launch can have."""
    if any(n > most for n, most in zip(_three(step.grid), MAX_GRID)):
        raise ValueError(f"{step.function}: the grid {step.grid} is larger than {MAX_GRID}")


_shared: dict[tuple[int, int], int] = {}  # (device, function) -> the most that a launch may have


def _allow_shared(device: int, handle: int, step: Launch) -> None:
    """Lets a function's launches have that much shared memory; never less than before, for plans
    that have more. Raises ValueError."""
    if step.shared_bytes > _shared.get((device, handle), 0):
        if lib.pl_gpu_function_shared(device, handle, step.shared_bytes):
            raise ValueError(f"{step.function}: {step.shared_bytes} bytes of shared memory")
        _shared[device, handle] = step.shared_bytes


def _transfer(step: Fill | Copy) -> tuple[dict, Block]:
    if isinstance(step, Fill):
        return {"kind": lib.PL_LAUNCH_FILL}, Block([step.to, Int64(step.value), Int64(step.nbytes)])
    return {"kind": lib.PL_LAUNCH_COPY}, Block([step.to, step.source, Int64(step.nbytes)])


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return int(x), int(y), int(z)

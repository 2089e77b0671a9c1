"""Records calls of every native kernel, which replay.c repeats on another processor:

    PLAIT_TIER=ready PYTHONPATH=tests:tests/kernels python tests/kernels/aarch64/record.py FOLDER \
        [OPERATOR ...]

FOLDER/calls: for each call the function, its parameters, what its arrays hold before and after.
FOLDER/groups.c: the loops of fused groups, as they are given to a user's C compiler.

The kernels run as on a machine with registers of four floats: blocks of channels are then those of
NEON. Calls are the samples of the operator records, of some operators where they are named, else
of all, and what a few networks compute.
"""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import native_calls as native
import networks
import numpy as np
from plait.engine import ffi, lib
from plait.engine.error import MXNetError
from plait.kernels.cpu import jit
from plait.kernels.cpu.backend import CPU
from plait.kernels.layouts import physical_shape
from plait.kernels.plan import infer, scalars_of
from plait.kernels.record import REGISTRY
from plait.kernels.spec import NUMPY_DTYPES
from sanitized import DTYPES

MAX_BYTES = 1 << 20  # of a call's arrays
MAX_ALIKE = 40  # calls of one function with one set of dtypes
CODES = {"f": {2: 1, 4: 2, 8: 3}}  # how replay.c compares: floats by size, 0: as bytes, 4: bfloat16
SCALARS = [5.0, 3.0]  # seed and counter of random operators


class Recorder:
    def __init__(self, folder: Path):
        self.calls = (folder / "calls").open("wb")
        self.groups = folder / "groups.c"
        self.sources: dict[str, int] = {}
        self.loops: dict[int, str] = {}  # address -> the name under which replay.c finds it
        self.seen: set[bytes] = set()
        self.alike: Counter = Counter()
        self.functions: Counter = Counter()
        self.chosen: list = []

    def watch(self) -> None:
        """From now on notes the compiled groups and the kernels that graphs choose."""
        compiled, choose = jit.function, CPU.choose

        def function(source: str) -> int:
            address = compiled(source)
            number = self.sources.setdefault(source, len(self.sources))
            self.loops[address] = f"plk_group_{number}"
            return address

        def chosen(op, ins, outs, attrs, derived=True):
            found = choose(op, ins, outs, attrs, derived)
            if found is not None and found.function.startswith("plk_"):
                self.chosen.append((op, list(ins), list(outs), dict(attrs), found))
            return found

        jit.function, CPU.choose = function, chosen
        for number in range(count_loops()):
            address = lib.plk_pointwise_loop(number, lib.PLK_F32)
            self.loops[int(ffi.cast("uintptr_t", address))] = f"plk_loop_{number}"

    def record(self, op, found, attrs, arrays, dtypes, outs) -> bool:
        """Runs a kernel and writes the call; False where it cannot be repeated elsewhere."""
        if found.owner is not None or found.python:
            return False
        params = ffi.new(found.params[0] + " *", found.params[1]) if found.params else None
        names = self.names(ffi.typeof(params).item, params) if params is not None else []
        if names is None:
            return False
        text = bytes(ffi.buffer(params)) if params is not None else b""
        alike = (found.function, tuple(dtypes))
        key = b"".join([found.function.encode(), text, repr((dtypes, outs)).encode()])
        if key in self.seen or self.alike[alike] >= MAX_ALIKE:
            return False
        self.seen.add(key)
        arrays = [np.array(a) for a in arrays]
        arrays += [np.full(stored(t), 77).astype(NUMPY_DTYPES[t.dtype]) for t in outs]
        dtypes = [*dtypes, *(t.dtype for t in outs)]
        if sum(a.nbytes for a in arrays) > MAX_BYTES:
            return False
        before = [a.tobytes() for a in arrays]
        bufs = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in arrays] or 1)
        scalars = [*scalars_of(op, attrs), *SCALARS]
        status = getattr(lib, found.function)(
            params if params is not None else ffi.NULL, bufs, ffi.new("double[]", scalars)
        )
        self.alike[alike] += 1
        self.functions[found.function] += 1
        put = self.calls.write
        for name in (found.function, op.name):
            put(struct.pack("<q", len(name)) + name.encode())
        put(struct.pack("<qq", status, len(text)) + text)
        put(struct.pack("<q", len(names)))
        for offset, name in names:
            put(struct.pack("<qq", offset, len(name)) + name.encode())
        put(struct.pack("<q", len(scalars)) + struct.pack(f"<{len(scalars)}d", *scalars))
        put(struct.pack("<q", len(arrays)))
        for a, dtype, first in zip(arrays, dtypes, before):
            kind = 4 if dtype == "bfloat16" else CODES.get(a.dtype.kind, {}).get(a.itemsize, 0)
            put(struct.pack("<qq", kind, a.nbytes) + first)
            changed = a.tobytes() != first
            put(struct.pack("<q", changed) + (a.tobytes() if changed else b""))
        return True

    def names(self, ctype, value, offset: int = 0) -> list[tuple[int, str]] | None:
        """(offset, name) of every loop that a struct points to; None: it points to something
        else."""
        found: list[tuple[int, str]] = []
        for name, field in ctype.fields:
            inner = getattr(value, name)
            at = offset + field.offset
            if field.type.kind == "struct":
                more = self.names(field.type, inner, at)
                if more is None:
                    return None
                found += more
            elif field.type.kind == "pointer" and inner != ffi.NULL:
                return None
            elif field.type.cname == "uintptr_t" and inner:
                if inner not in self.loops:
                    return None
                found.append((at, self.loops[inner]))
        return found

    def samples(self, names: Iterable[str]) -> None:
        for name in names:
            op, rng = REGISTRY[name], np.random.default_rng(zlib.crc32(name.encode()))
            for case in op.samples:
                for dtype in DTYPES:
                    arrays, dtypes = draw_all(rng, case.inputs, dtype)
                    attrs, ins = native.complete(op, case.attrs), native.types_of(arrays, dtypes)
                    try:
                        outs = infer(op, attrs, ins)
                        found = CPU.choose(op, ins, outs, attrs)
                    except MXNetError:  # not for this dtype
                        continue
                    if found is not None:
                        self.record(op, found, attrs, arrays, dtypes, outs)

    def graphs(self) -> None:
        """The calls that graphs of networks chose, on normal numbers, zeros for indices."""
        rng = np.random.default_rng(0)
        for op, ins, outs, attrs, found in self.chosen:
            arrays = [normal(rng, t) for t in ins]
            self.record(op, found, attrs, arrays, [t.dtype for t in ins], outs)

    def close(self) -> None:
        self.calls.close()
        with self.groups.open("w") as f:
            f.write(jit.HEAD)
            f.writelines(f'#include "{name}"\n' for name in jit.HEADERS)
            for source, number in self.sources.items():
                body = re.sub(r"^#include.*$", "", source, flags=re.MULTILINE)
                f.write(
                    f"#define {jit.FUNCTION} plk_group_{number}\n{body}\n#undef {jit.FUNCTION}\n"
                )


def count_loops() -> int:
    from plait.kernels.cpu.generate import loops

    return len(loops())


def stored(t) -> tuple[int, ...]:
    """The shape of a type's memory."""
    return tuple(physical_shape(t.shape, t.layout)) if t.layout else tuple(t.shape)


def normal(rng, t) -> np.ndarray:
    x = rng.normal(size=stored(t)) if t.dtype.startswith(("float", "bfloat")) else 0
    if t.dtype == "bfloat16":
        return native.round_to_bfloat16(np.asarray(x, np.float32))
    return np.asarray(np.broadcast_to(x, stored(t))).astype(NUMPY_DTYPES[t.dtype])


def draw_all(rng, given, dtype: str) -> tuple[list[np.ndarray], list[str]]:
    arrays, dtypes = [], []
    for what in given:
        kind = native.samples.kind_of(what)
        own = what[2] if kind == "values" and what[2] != "float32" else dtype
        arrays.append(native.draw(rng, what, own))
        dtypes.append(own)
    return arrays, dtypes


def main(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lib.plk_isa_limit(lib.PLK_BASELINE)
    recorder = Recorder(folder)
    recorder.watch()
    if not names:
        networks.run()
    recorder.graphs()
    recorder.samples(names or native.NAMES)
    recorder.close()
    missing = sorted(set(declared_kernels()) - set(recorder.functions))
    print(f"record: {sum(recorder.functions.values())} calls of {len(recorder.functions)} kernels,")
    print(f"{len(recorder.sources)} fused groups; not called:", *missing)


def declared_kernels() -> Iterable[str]:
    text = (Path(jit.CPU) / "generated" / "kernels.h").read_text()
    return re.findall(r"^int (\w+)\(", text, re.MULTILINE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""The reference as a kernel: what the core calls for plans without a native one runs an operator's
`ref` on NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import callback, ffi, lib
from ..engine.error import MXNetError, OperatorError
from .layouts import physical_shape, to_physical, to_plain
from .record import Operator
from .spec import BFLOAT16, NUMPY_DTYPES, Spec, from_bfloat16, round_to_bfloat16
from .traits import PythonKernel

KERNEL = "plpy_kernel"  # the C function


def view_as_numpy(address: Any, s: Spec) -> np.ndarray:
    """The memory at `address` as a NumPy array of this spec (of the physical shape where it has a
    layout); no copy, the caller keeps it alive."""
    shape = physical_shape(s.shape, s.layout)
    if s.size == 0:
        return np.empty(shape, NUMPY_DTYPES[s.dtype])
    return np.frombuffer(ffi.buffer(address, s.nbytes), NUMPY_DTYPES[s.dtype]).reshape(shape)


def read(address: Any, s: Spec) -> np.ndarray:
    """A copy of the values of this spec at `address`."""
    return view_as_numpy(address, s).copy()


def write(address: Any, s: Spec, values: np.ndarray) -> None:
    """Puts values of this spec at `address`."""
    view_as_numpy(address, s)[...] = values


def run_reference(
    op: Operator, attrs: dict[str, Any], arrays: Sequence[np.ndarray], rng: Any = None
) -> list[np.ndarray]:
    """Evaluates `ref` on NumPy arrays; 16-bit floats are computed in float32. Returns outputs, then
    mutated inputs."""
    wide = [
        (
            from_bfloat16(a)
            if a.dtype == BFLOAT16
            else a.astype(np.float32)
            if a.dtype == np.float16
            else a
        )
        for a in arrays
    ]
    extra = {"rng": rng} if op.random else {}
    with np.errstate(all="ignore"):
        result = op.ref(np, *wide, **attrs, **extra)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def store(target: np.ndarray, value: Any) -> None:
    """Writes a reference's result, rounded or wrapped to the target's dtype."""
    with np.errstate(all="ignore"):
        if target.dtype == BFLOAT16:
            target[...] = round_to_bfloat16(
                np.broadcast_to(np.asarray(value, np.float32), target.shape)
            )
        else:
            target[...] = np.asarray(value).astype(target.dtype, copy=False)


def generator(seed: float, counter: float) -> np.random.Generator:
    """The random stream of one call: Philox keyed by the seed, placed by the call counter."""
    return np.random.Generator(np.random.Philox(key=[int(seed), int(counter)]))


class Call(NamedTuple):
    """What a kernel in Python gets of a call: attributes with this call's numbers, and the random
    generator of an operator that draws."""

    op: Operator
    attrs: dict[str, Any]
    rng: np.random.Generator | None
    in_specs: Sequence[Spec]
    out_specs: Sequence[Spec]
    mutated: Sequence[int]
    pending: Any = None  # cuda.pending.Pending

    @property
    def target_specs(self) -> list[Spec]:
        """Of what the reference gives: outputs, then inputs written in place."""
        return [*self.out_specs, *(self.in_specs[i] for i in self.mutated)]

    def run(self, memory: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
        """Runs the reference from the memory of inputs to that of targets, which may overlap."""
        ins, specs, op = self.in_specs, self.target_specs, self.op
        arrays = [to_plain(m, s.shape, s.layout) for m, s in zip(memory, ins)]
        results = run_reference(op, self.attrs, arrays, self.rng)
        self.check(results)
        results = [to_physical(np.asarray(v), s.layout) for v, s in zip(results, specs)]
        results = [
            np.array(v) if np.may_share_memory(v, t) else v for v, t in zip(results, targets)
        ]
        for target, value in zip(targets, results):
            store(target, value)

    def check(self, results: Sequence) -> None:
        """Raises OperatorError where a reference breaks its record's promises."""
        specs = self.target_specs
        if len(results) != len(specs):
            raise OperatorError(
                self.op.name, f"its reference must give {len(specs)} arrays, got {len(results)}"
            )
        for s, value in zip(specs, results):
            if tuple(np.shape(value)) != s.shape:
                raise OperatorError(
                    self.op.name, f"inferred shape {s.shape}, its reference gives {np.shape(value)}"
                )

    def failed(self, error: Exception) -> int:
        """The status by which the kernel reports an exception."""
        if isinstance(error, MXNetError):
            return callback.fail(error)
        given = ", ".join(f"{s.dtype} {s.shape}" for s in self.in_specs) or "no inputs"
        return callback.fail(
            error, f"{self.op.name}: {error} ({type(error).__name__}), got {given}"
        )


def call_of(params: Any, scalars: Any) -> Call:
    """The call for which the core runs a kernel in Python."""
    op, attrs, *rest = callback.kept(ffi.cast("void **", params)[0])
    call, at = dict(attrs), 0
    if op.has(PythonKernel):
        return Call(op, call, None, *rest)
    for p in op.params:
        if p.dynamic:
            count = len(call[p.name]) if isinstance(call[p.name], tuple) else None
            if count is None:
                call[p.name] = (
                    None if scalars[at] != scalars[at] and p.kind.endswith("?") else scalars[at]
                )
            else:
                call[p.name] = tuple(scalars[at + i] for i in range(count))
            at += 1 if count is None else count
    rng = generator(scalars[at], scalars[at + 1]) if op.is_random(call) else None
    return Call(op, call, rng, *rest)


def run_python(call: Call, bufs: Any) -> None:
    """Runs an operator's own kernel in Python."""
    kernel = call.op.trait(PythonKernel)
    assert kernel is not None
    addresses = [
        int(ffi.cast("uintptr_t", bufs[i])) for i in range(len(call.in_specs) + len(call.out_specs))
    ]
    n = len(call.in_specs)
    kernel.run(
        list(zip(addresses, call.in_specs)), list(zip(addresses[n:], call.out_specs)), **call.attrs
    )


@ffi.def_extern(name=KERNEL, error=3)
def _run_fallback(params, bufs, scalars):
    call = call_of(params, scalars)
    try:
        if call.op.has(PythonKernel):
            run_python(call, bufs)
            return lib.PL_OK
        n = len(call.in_specs)
        memory = [view_as_numpy(bufs[i], s) for i, s in enumerate(call.in_specs)]
        targets = [view_as_numpy(bufs[n + i], s) for i, s in enumerate(call.out_specs)]
        call.run(memory, [*targets, *(memory[i] for i in call.mutated)])
        return lib.PL_OK
    except Exception as error:
        return call.failed(error)

"""mx.rtc: user-defined kernels in CUDA C++, compiled at run time.

module = mx.rtc.CudaModule(source)
axpy = module.get_kernel("axpy", "const float *x, float *y, float alpha")
axpy.launch([x, y, 3.0], mx.gpu(0), (1, 1, 1), (10, 1, 1))
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..engine import Context, callback, ffi, gpu, lib, location, raise_last
from ..engine.error import InvalidType, InvalidValue, OutOfMemory
from ..engine.recent import Recent
from ..kernels import backend
from .ndarray import NDArray

# CUDA's names of argument types -> dtypes
TYPES = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "uint8_t": "uint8",
    "int": "int32",
    "int32_t": "int32",
    "int8_t": "int8",
    "char": "int8",
    "int64_t": "int64",
}
ARGUMENT = re.compile(r"^(const )?\s*(\w+)\s*(\*)?\s*(\w+)?$")
GLOBAL = re.compile(r'extern\s*"C"\s*__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)')
MAX_PLANS = 64  # of one kernel


class CudaModule:
    """Compiled CUDA source.

    Args:
        source: CUDA C++ text. Functions other than templates must be declared `extern "C"`.
        options: flags of the compiler (NVRTC), such as "-use_fast_math".
        exports: names of template instances for get_kernel, "axpy<float>".
    Raises: DeviceError without a GPU or a compiler; MXNetError, with the compiler's messages, if
        the source does not compile.
    """

    def __init__(self, source: str, options: Any = (), exports: Any = ()):
        gpu(0).check()
        self._source = source
        self._options = (options,) if isinstance(options, str) else tuple(options)
        exports = (exports,) if isinstance(exports, str) else tuple(exports)
        for name in exports or GLOBAL.findall(source)[:1]:
            self._function(name)

    def _function(self, name: str) -> int:
        from ..kernels.cuda.compile import function

        return function(0, self._source, name, (), self._options)

    def get_kernel(self, name: str, signature: str) -> CudaKernel:
        """A kernel by its name and C signature, such as "const float *x, float *y, int n".

        `*` marks an array, `const` one that is only read. Raises ValueError for another form,
        TypeError for a type that is not among TYPES, MXNetError for an unknown name.
        """
        arguments = []
        for text in signature.split(","):
            found = ARGUMENT.match(" ".join(text.split()))
            if not found or found[2] == "const":
                raise InvalidValue(
                    f'Invalid function prototype "{text.strip()}". Must be in the form of '
                    '"(const) type (*) (name)"'
                )
            if found[2] not in TYPES:
                raise InvalidType(
                    f"Unsupported kernel argument type {text.strip()}. Supported types are: "
                    f"{','.join(TYPES)}."
                )
            arguments.append((TYPES[found[2]], bool(found[3]), bool(found[1])))
        self._function(name)
        return CudaKernel(self, name, arguments)


class CudaKernel:
    """One kernel of a CudaModule, made by get_kernel. arguments: (dtype, is it an array?, is it
    only read?) of each."""

    def __init__(self, module: CudaModule, name: str, arguments: Any):
        self._module, self._name, self._arguments = module, name, tuple(arguments)
        self._plans = Recent(MAX_PLANS)

    def launch(
        self, args: Any, ctx: Context, grid_dims: Any, block_dims: Any, shared_mem: int = 0
    ) -> None:
        """Queues one launch, ordered by the engine after earlier writes of its arrays and before
        later reads.

        Args:
            args: NDArrays on ctx where the signature has pointers, numbers elsewhere.
            ctx: a GPU.
            grid_dims, block_dims: tuples of three sizes.
            shared_mem: dynamic shared memory, bytes.
        Raises: ValueError, TypeError for arguments that do not fit the signature; DeviceError for a
            GPU that does not exist.
        """
        self._check(args, ctx, grid_dims, block_dims)
        numbers = [
            np.array(a, dtype).tobytes()
            for a, (dtype, is_array, _) in zip(args, self._arguments)
            if not is_array
        ]
        key = (ctx, tuple(grid_dims), tuple(block_dims), shared_mem, *numbers)
        plan = self._plans[key]
        if plan is None:
            plan = self._plans[key] = _Plan(self, numbers, ctx, grid_dims, block_dims, shared_mem)
        arrays = [a._handle for a, (_, is_array, _) in zip(args, self._arguments) if is_array]
        where, status = location.capture(), lib.PL_AGAIN
        while status == lib.PL_AGAIN:  # the queue is full; Ctrl-C ends it
            status = lib.pl_invoke(plan.handle, arrays, ffi.NULL, ffi.NULL, where)
        if status:
            raise_last()

    def _check(self, args, ctx, grid_dims, block_dims) -> None:
        if not isinstance(ctx, Context) or backend.of(ctx).compiles != "CUDA C++":
            raise InvalidValue("Cuda kernel can only be launched on GPU")
        ctx.check()
        if len(grid_dims) != 3 or len(block_dims) != 3:
            raise InvalidValue("grid_dims and block_dims must be tuples of 3 integers")
        if len(args) != len(self._arguments):
            raise InvalidValue(
                f"CudaKernel({self._name}) expects {len(self._arguments)} arguments but got"
                f" {len(args)}"
            )
        for i, (a, (dtype, is_array, _)) in enumerate(zip(args, self._arguments)):
            if is_array and not isinstance(a, NDArray):
                raise InvalidType(
                    f"The {i}-th argument is expected to be a NDArray but got {type(a)}"
                )
            if is_array and (a.context != ctx or a._spec.dtype != dtype):
                raise InvalidValue(
                    f"{self._name}: argument {i} must be {dtype} on {ctx}, got {a._spec.dtype} on"
                    f" {a.context}\n  fix: x.astype({dtype!r}).as_in_context({ctx})"
                )
            if not is_array and not isinstance(a, (int, float, np.generic)):
                raise InvalidType(
                    f"The {i}-th argument is expected to be a number, but got {type(a)}"
                )


class _Plan:
    """A launch with everything fixed but the arrays."""

    def __init__(
        self,
        kernel: CudaKernel,
        numbers: Any,
        ctx: Context,
        grid_dims: Any,
        block_dims: Any,
        shared_mem: Any,
    ):
        from ..kernels.cuda.launch import Buffer, Bytes, Launch, Launches

        self.handle = 0
        left, mutates = iter(numbers), bytearray()
        arguments: list[Buffer | Bytes] = []
        for _, is_array, is_const in kernel._arguments:
            if is_array:
                arguments.append(Buffer(len(mutates)))
                mutates.append(not is_const)
            else:
                arguments.append(Bytes(next(left)))
        module = kernel._module
        step = Launch(
            module._source,
            kernel._name,
            tuple(grid_dims),
            tuple(block_dims),
            arguments,
            shared_mem,
            options=module._options,
        )
        params, owner = Launches((step,)).on(ctx.device_id)
        self.handle = lib.pl_plan_new(
            ffi.addressof(lib, "pl_kernel_launch"),
            params,
            ffi.sizeof("pl_launches"),
            len(mutates),
            0,
            [],
            bytes(mutates),
            0,
            lib.PL_PLAN_INLINE,
            ctx.lane,
            ctx.device_id,
            kernel._name.encode(),
            ffi.NULL,
        )
        if not self.handle:
            raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
        number = callback.keep(owner)
        lib.pl_plan_own(self.handle, callback.RELEASE, callback.pointer_to(number))

    def __del__(self, free=lib.pl_plan_free):
        free(self.handle)

"""mx.rtc: CUDA source compiled at run time; without a GPU each use says what is missing."""

from __future__ import annotations

from ..engine import gpu


class CudaModule:
    """Compiled CUDA source.

    Args:
        source: CUDA C++ text.
        options: flags of the compiler.
        exports: names of template instances that get_kernel shall find.
    Raises: DeviceError, since this build cannot use a GPU.
    """

    def __init__(self, source, options=(), exports=()):
        raise gpu(0).unusable()

    def get_kernel(self, name, signature):
        """A kernel by its name and C signature, such as "const float *x, float *y, int n"."""
        raise gpu(0).unusable()


class CudaKernel:
    """One kernel of a CudaModule, which makes it. Raises DeviceError."""

    def __init__(self, handle, name, is_ndarray, dtypes):
        raise gpu(0).unusable()

    def launch(self, args, ctx, grid_dims, block_dims, shared_mem=0):
        """Runs the kernel on a GPU."""
        raise ctx.unusable()

"""The store "nccl": sums over GPUs by NVIDIA's collective communication library, through CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine import ffi, lib, num_gpus, push
from ...engine.error import MXNetError
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from .base import STORES, StoreError, arrays_of
from .kvstore import KVStore, buckets


class Nccl:
    """The communicators of a list of GPUs; created once for each list."""

    made: dict[tuple[int, ...], Nccl] = {}  # noqa: RUF012 - a cache

    def __init__(self, devices: tuple[int, ...]):
        cuda = _cupy_cuda()
        self._cuda, self._devices = cuda, devices
        self._communicators = cuda.nccl.NcclCommunicator.initAll(list(devices))
        self._streams = []
        for number in devices:
            with cuda.Device(number):
                self._streams.append(cuda.Stream(non_blocking=True))
        nccl = cuda.nccl
        self._dtypes = {
            "float32": nccl.NCCL_FLOAT32,
            "float64": nccl.NCCL_FLOAT64,
            "float16": nccl.NCCL_FLOAT16,
            "bfloat16": nccl.NCCL_BFLOAT16,
            "int8": nccl.NCCL_INT8,
            "uint8": nccl.NCCL_UINT8,
            "int32": nccl.NCCL_INT32,
            "int64": nccl.NCCL_INT64,
        }

    @classmethod
    def of(cls, arrays: list[NDArray]) -> Nccl:
        """For the devices of arrays. Raises StoreError unless each is on a GPU of its own."""
        devices = tuple(a.context.device_id for a in arrays)
        if any(a.context.on_host for a in arrays) or len(set(devices)) < len(devices):
            raise StoreError(
                "kvstore 'nccl': the arrays of a key must be on different GPUs, got"
                f" {', '.join(str(a.context) for a in arrays)}\n  fix: kv.create('device')"
            )
        return cls.made.get(devices) or cls.made.setdefault(devices, cls(devices))

    def all_reduce(self, keys: list[list[NDArray]]) -> None:
        """Replaces all arrays of each key by their sum, as one operation on the engine's
        communication lane: other work continues."""
        arrays = [a for key in keys for a in key]
        for a in arrays:
            if a._spec.dtype not in self._dtypes:
                raise StoreError(f"kvstore 'nccl': cannot sum arrays of dtype {a._spec.dtype}")
        push(
            lambda: self._run(keys),
            reads=arrays,
            writes=arrays,
            lane="comm",
            name="nccl_all_reduce",
        )

    def _run(self, keys) -> None:
        nccl = self._cuda.nccl
        nccl.groupStart()
        for key in keys:
            for a, communicator, stream, number in zip(
                key, self._communicators, self._streams, self._devices
            ):
                data = int(ffi.cast("uintptr_t", lib.pl_array_data(a._handle)))
                with self._cuda.Device(number):
                    communicator.allReduce(
                        data, data, a.size, self._dtypes[a._spec.dtype], nccl.NCCL_SUM, stream.ptr
                    )
        nccl.groupEnd()
        for stream in self._streams:
            stream.synchronize()


def _cupy_cuda():
    if not num_gpus():
        raise MXNetError("kvstore 'nccl': this machine has no GPU\n  fix: kv.create('device')")
    try:
        from cupy import cuda
        from cupy.cuda import nccl  # noqa: F401
    except ImportError as error:
        raise MXNetError(
            f"kvstore 'nccl': CuPy's NCCL cannot be used ({error})\n"
            "  fix: pip install \"plait[cuda13]\" nvidia-nccl-cu13, or kv.create('device')"
        ) from None
    return cuda


class NcclStore(KVStore):
    """A store that sums over GPUs with NCCL. What NCCL cannot do, such as sparse arrays, works as
    in the store "device"."""

    def __init__(self, handle: str = "nccl"):
        super().__init__(handle)
        _cupy_cuda()

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        """push and pull; without an updater the arrays of each key are summed in place."""
        pairs = self._pairs(key, value)
        targets = pairs if out is None else self._pairs(key, out)
        same = all(
            len(a) == len(b) and all(x is y for x, y in zip(a, b))
            for (_, a), (_, b) in zip(pairs, targets)
        )
        summed = [arrays for _, arrays in pairs if len(arrays) > 1]
        if (
            not same
            or self._updater is not None
            or self._compression is not None
            or any(a.stype != "default" for arrays in summed for a in arrays)
        ):
            super().pushpull(key, value, out, priority)
            return
        for k, _ in pairs:
            self._value(k)
        with pause():
            for some in buckets(summed, [arrays[0]._spec.nbytes for arrays in summed]):
                Nccl.of(some[0]).all_reduce(some)
            for k, arrays in pairs:
                self._assign(k, arrays[0])

    def _sum(self, key, arrays, priority: int) -> NDArray:
        if len(arrays) == 1 or any(a.stype != "default" for a in arrays) or self._compression:
            return super()._sum(key, arrays, priority)
        copies = [a.copy() for a in arrays_of(arrays)]
        Nccl.of(copies).all_reduce([copies])
        return copies[0]


STORES["nccl"] = NcclStore

"""mx.runtime: what this build can do, feature by feature, under MXNet's names."""

from __future__ import annotations

import importlib.metadata
from collections import OrderedDict

from ..engine import cuda, lib, num_gpus
from ..engine.error import InvalidValue


class Feature:
    """One feature of the build.

    Attributes:
        name: str.
        enabled: bool.
    """

    def __init__(self, name: str, enabled: bool):
        self._name, self._enabled = name, bool(enabled)

    @property
    def name(self) -> str:
        return self._name

    @property
    def enabled(self) -> bool:
        return self._enabled

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def _installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _found() -> dict[str, bool]:
    gpu, isa = num_gpus() > 0, lib.plk_isa_get()
    absent = (
        "TENSORRT SSE F16C JEMALLOC BLAS_ATLAS BLAS_MKL BLAS_APPLE CAFFE DIST_KVSTORE "
        "SSE4A TVM_OP DEBUG CXX14 SIGNAL_HANDLER"
    ).split()
    return {
        "CUDA": gpu,
        "CUDNN": gpu and cuda.find("cudnn") is not None,
        "NCCL": gpu and cuda.find("nccl") is not None,
        "CUDA_RTC": gpu and cuda.find("nvrtc") is not None,
        "CPU_AVX2": isa in (lib.PLK_AVX2, lib.PLK_AVX512),
        "CPU_AVX512": isa == lib.PLK_AVX512,
        "OPENMP": False,
        "BLAS_OPEN": True,
        "LAPACK": True,
        "MKLDNN": False,
        "OPENCV": _installed("simplejpeg"),
        "PROFILER": True,
        "INT64_TENSOR_SIZE": True,
        **dict.fromkeys(absent, False),
    }


class Features(OrderedDict):
    """The features by name. A dict of Feature."""

    instance: Features | None = None

    def __new__(cls):
        if cls.instance is None:
            cls.instance = super().__new__(cls)
            for name, on in _found().items():
                cls.instance[name] = Feature(name, on)
        return cls.instance

    def __init__(self) -> None:
        """There is one object: features do not change while a process runs."""

    def is_enabled(self, feature_name: str) -> bool:
        """Is it in this build? Raises MXNetError for a name that is unknown."""
        name = feature_name.upper()
        if name not in self:
            raise InvalidValue(f"Feature {name!r} is unknown\n  fix: one of {', '.join(self)}")
        return self[name].enabled

    def __repr__(self) -> str:
        return str(list(self.values()))


def feature_list() -> list[Feature]:
    """All features."""
    return list(Features().values())

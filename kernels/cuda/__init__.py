"""The backend of CUDA GPUs: kernels, their compiler, and how their launches are made.

tables/ says which kernel runs a call. It uses the names of this package (`cuda.Launch`,
`cuda.conv_plan`), which are loaded when first used: few processes have a GPU.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .. import module_names

VOCABULARY = ("launch", "layout", "matmul_plan")  # modules whose names are names here

if TYPE_CHECKING:
    from . import (
        attention_plan,
        compile,
        conv_plan,
        copy_plan,
        fused_plan,
        norm_plan,
        pointwise_plan,
        recurrent_plan,
        reduce_plan,
        scatter_plan,
        sort_plan,
        update_plan,
    )
    from .launch import *
    from .layout import *
    from .matmul_plan import *
else:

    def __getattr__(name: str) -> Any:
        if name in module_names(__file__):
            return importlib.import_module(f"{__name__}.{name}")
        for module in VOCABULARY:
            found = importlib.import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return globals().setdefault(name, getattr(found, name))
        raise AttributeError(f"{__name__} has no {name}")

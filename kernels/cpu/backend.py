"""The backend of CPUs; importing this module fills its table."""

import importlib

from ...engine import hooks
from .. import module_names, ops, tables  # noqa: F401  (pointwise entries are made from the records)
from ..backend import Backend, Branches, Fusion, register
from ..record import REGISTRY
from .table import TABLE, native

for _name in module_names(__file__):
    importlib.import_module(f"{__package__}.{_name}")
tables.fill(TABLE, "cpu")

from . import fused_table, reduce_table  # noqa: E402  (after all: entries stand in their order)


@native(*sorted({op.name for op in REGISTRY.values() if op.body}), derived=True)
def decomposition_entry(op, ins, outs, attrs):
    """A program of the operator's decomposition, as one kernel."""
    return hooks.get("kernel of a decomposition")(op, ins, outs, attrs)


register(
    Backend(
        "cpu",
        kernels=TABLE,
        compiles="C",
        fusion=Fusion(
            row_dtypes=("float32",),
            reductions=reduce_table.KINDS,
            can_compile=fused_table.can_compile,
            prepare=fused_table.prepare,
        ),
        fused_dtypes=("float32",),
        ends_matmul=lambda *_, **__: True,
        ends_conv=lambda op, attrs: fused_table.loop_of(op, attrs) is not None,
        # below 64 KB no kernel uses a second thread, so that the order of its sums does not depend
        # on where it runs. Measured on two cores: 0.06 ms of work loses by branches, 0.34 ms gains
        # a third
        branches=Branches(1 << 16, 100.0),
    )
)

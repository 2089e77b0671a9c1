"""Dense layers that multiply only what pruning has left, for inference."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...kernels.ops.sparse_dense import HEIGHTS, stored
from ..block import Block
from ..hybrid import HybridBlock
from ..nn import Dense
from ..parameter import Parameter
from ..replace import replace_layers, share_parameters

ROUNDS = 5


class SparseDense(HybridBlock):
    """A Dense layer with a pruned weight, of which only the entries are kept that are not zero.
    `sparsify` makes it of a Dense layer. height: rows of the weight that share an entry, 1 or
    16."""

    def __init__(self, dense: Dense, height: int):
        super().__init__(prefix=dense.prefix)
        self._dense = {
            "num_hidden": dense._units,
            "flatten": dense._flatten,
            "no_bias": dense.bias is None,
            "height": height,
        }
        arrays = stored(dense.weight.data(dense.weight.list_ctx()[0]).asnumpy(), height)
        for name, array in zip(("values", "columns", "starts"), arrays):
            p = self.params.get(name, shape=array.shape, dtype=array.dtype, grad_req="null")
            p.initialize(ctx=dense.weight.list_ctx())
            p.set_data(nd.array(array, dtype=array.dtype))
            setattr(self, name, p)
        share_parameters(self, dense, ("bias",))
        self.act = dense.act

    values: Parameter
    columns: Parameter
    starts: Parameter

    def hybrid_forward(
        self, F: Any, x: Any, values: Any, columns: Any, starts: Any, bias: Any = None
    ) -> Any:
        given = [x, values, columns, starts, *([] if bias is None else [bias])]
        y = F.contrib.sparse_dense(*given, **self._dense)
        return y if self.act is None else self.act(y)


def _seconds(block: Block, x: Any) -> float:
    """The shortest of a few calls."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        block(x).wait_to_read()
        best = min(best, time.perf_counter() - start)
    return best


def sparsify(net: Block, batch_size: int = 1, always: bool = False) -> Block:
    """Replaces the Dense layers inside net whose weights have enough zeros by SparseDense layers.

    Which are enough depends on the machine, the sizes and the batch: each layer is measured in its
    forms on batch_size rows, and the fastest stays. always: the form with the least entries,
    without measurements. Weights are rows and inputs that do not change any more: prune first.
    Returns net. Raises InvalidValue: net is a Dense layer itself.
    """
    if type(net) is Dense:
        raise InvalidValue(
            f"sparsify: net must contain its Dense layers, got {net!r}\n  fix: give the block that"
            " it is part of"
        )
    if batch_size < 1:
        raise InvalidValue(f"sparsify: batch_size must be at least 1, got {batch_size}")

    def make(dense: Dense) -> SparseDense | None:
        weight = dense.weight
        if weight._data is None or np.dtype(weight.dtype) != np.float32:
            return None
        values = weight.data(weight.list_ctx()[0]).asnumpy()
        if values.size == 0 or (values != 0).mean() > 0.9:
            return None
        forms = [SparseDense(dense, height) for height in HEIGHTS]
        if always:
            return min(forms, key=lambda form: form.values.data().size)
        x = nd.random.uniform(shape=(batch_size, values.shape[1]), ctx=weight.list_ctx()[0])
        times = {form: _seconds(form, x) for form in forms}
        best = min(forms, key=lambda form: times[form])
        return best if times[best] < _seconds(dense, x) else None

    replace_layers(net, (Dense,), make)
    return net

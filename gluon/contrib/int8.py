"""Networks with weights of 8 bits, for inference: `quantize_weights`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...kernels.record import dtype_name
from ...kernels.spec import DType
from ..block import Block
from ..nn import Dense
from ..replace import replace_layers, share_parameters

LARGEST = 127


class Int8Dense(Dense):
    """A Dense layer with an int8 weight (units, in_units) and a scale for each unit; inputs, bias
    and results are floats. `quantize_weights` makes it of a Dense layer."""

    def __init__(self, units: int, activation: str | None = None, **kwargs: Any):
        super().__init__(units, activation, **kwargs)
        self.weight.grad_req = "null"
        self.weight.cast("int8")
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(units,), init="ones", grad_req="null")

    def cast(self, dtype: DType) -> None:
        """Changes the dtype of all parameters but the weight."""
        super().cast(dtype)
        self.weight.cast("int8")

    def hybrid_forward(
        self, F: Any, x: Any, weight: Any, bias: Any = None, scale: Any = None
    ) -> Any:
        given = [x, weight, scale, *([] if bias is None else [bias])]
        attrs = {"num_hidden": self._units, "flatten": self._flatten, "no_bias": bias is None}
        out = F.contrib.int8_dense(*given, **attrs)
        return out if self.act is None else self.act(out)

    def __repr__(self):
        return "Int8" + super().__repr__()


def rounded(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(whole numbers, scales): weight is about whole * scale for each row, with an error of at most
    half a scale."""
    top = np.abs(weight).max(axis=1, initial=0)
    scale = np.where(top > 0, top / LARGEST, 1).astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def quantize_weights(net: Block) -> Block:
    """Replaces the Dense layers inside net by layers with int8 weights, which take a quarter of the
    memory; activations stay float32. Each row of a weight has a scale, its largest element / 127.

    The float weights are freed, unless another block shares them. Parameters are saved and loaded
    as they are then: int8. A net that is to load such a file is quantized first, with weights or
    without. Returns net. Raises ValueError: net is a Dense layer itself, or a weight is no finite
    float32.

    >>> net = gluon.nn.HybridSequential()
    >>> net.add(gluon.nn.Dense(2, in_units=3))
    >>> net.initialize()
    >>> gluon.contrib.quantize_weights(net)[0].weight.data().dtype.__name__
    'int8'
    """
    if type(net) is Dense:
        raise InvalidValue(
            f"quantize_weights: net must contain its Dense layers, got {net!r}\n  fix: give the"
            " block that it is part of"
        )
    replace_layers(net, (Dense,), _quantized)
    return net


def _quantized(dense: Dense) -> Int8Dense:
    weight, bias = dense.weight, dense.bias
    if dtype_name(weight.dtype) != "float32":
        raise InvalidValue(
            f"quantize_weights: {weight.name} must be float32, got {dtype_name(weight.dtype)}"
        )
    made = Int8Dense(
        dense._units,
        use_bias=bias is not None,
        flatten=dense._flatten,
        in_units=weight._sizes()[1],
        prefix=dense.prefix,
    )
    if bias is not None:
        share_parameters(made, dense, ("bias",))
    made.act = dense.act
    made._active = dense._active
    if weight._data is not None:
        values = weight.data(weight.list_ctx()[0]).asnumpy()
        if not np.isfinite(values).all():
            raise InvalidValue(f"quantize_weights: {weight.name} must be finite")
        for p, value in zip((made.weight, made.scale), rounded(values)):
            p.initialize(ctx=weight.list_ctx())
            p.set_data(nd.array(value, dtype=value.dtype))
    return made

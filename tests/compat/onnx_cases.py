"""Calls of each kind of ONNX operator: (operator, opset, inputs, attributes, outputs)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper
from onnx.helper import make_graph, make_node, make_tensor_value_info

_random = np.random.RandomState(3)


class Case(NamedTuple):
    op: str
    opset: int
    inputs: list
    attrs: dict
    n_outputs: int = 1


def f(*shape: int) -> np.ndarray:
    return _random.randn(*shape).astype(np.float32)


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def u(*shape: int) -> np.ndarray:
    return _random.randint(0, 255, shape).astype(np.uint8)


def case(op: str, *inputs: Any, opset: int = 17, n: int = 1, **attrs: Any) -> Case:
    return Case(op, opset, list(inputs), attrs, n)


ONE = np.array(1, np.float32)
CASES = [
    case("Add", f(2, 3), f(3)),
    case("Div", i(7, -7, 5), i(2, 2, -3)),
    case("Mod", i(7, -7, 5), i(3, 3, -3)),
    case("Mod", f(5), f(5), fmod=1),
    case("Pow", np.abs(f(3)), np.array([2, 3, 0.5], np.float32)),
    case("Clip", f(3, 4), np.float32(-0.5), np.float32(0.5)),
    case("Clip", f(3, 4), opset=10, min=-0.5, max=0.5),
    case("Cast", f(4) * 3, to=TensorProto.INT32),
    case("HardSwish", f(9)),
    case("Gelu", f(9), opset=20),
    case("Mish", f(9), opset=18),
    case("PRelu", f(2, 3), f(3)),
    case("Celu", f(9), alpha=0.7),  # from here on: bodies of functions
    case("Shrink", f(9), lambd=0.4, bias=0.1),
    case("MeanVarianceNormalization", f(2, 3, 4, 4)),
    case("GroupNormalization", f(2, 4, 3, 3), f(2), f(2), opset=18, num_groups=2, epsilon=1e-5),
    case("NegativeLogLikelihoodLoss", f(3, 5), i(1, 4, 0), reduction="mean"),
    case("Reshape", f(2, 3, 4), i(0, -1)),
    case("Squeeze", f(1, 3, 1), opset=11, axes=[0]),
    case("Unsqueeze", f(3), i(0, 2)),
    case("Split", f(7, 2), opset=18, n=3, num_outputs=3),
    case("Split", f(6, 2), opset=11, n=2, split=[2, 4]),
    case("Slice", f(5, 6), i(-1, 1), i(-9, 5), i(0, 1), i(-2, 2)),
    case("Slice", f(5, 6), opset=9, starts=[1], ends=[-1], axes=[1]),
    case("Expand", f(3, 1), i(2, 1, 4)),
    case("Tile", f(2, 3), i(2, 1)),
    case("Pad", f(2, 3), i(1, 0, 0, 2), np.float32(7)),
    case("Pad", f(2, 5), i(0, 2, 0, 2), mode="reflect"),
    case("Pad", f(2, 3), opset=9, pads=[0, 1, 0, 1]),
    case("ConstantOfShape", i(2, 0, 3)),
    case("Range", i(1)[0], i(10)[0], i(3)[0]),
    case("Trilu", f(3, 4), i(1)[0]),
    case("DepthToSpace", f(1, 8, 2, 3), blocksize=2, mode="CRD"),
    case("EyeLike", f(3, 4), k=1),
    case("CenterCropPad", f(5, 6), i(3, 8), opset=18),
    case("Gather", f(4, 3), i([0, -1], [2, 1]), axis=0),
    case("GatherElements", f(3, 3), i([0, -1], [1, 1], [2, 0]), axis=1),
    case("GatherND", f(2, 3, 4), i([1], [0]), batch_dims=1),
    case("ScatterND", f(4, 3), i([1], [3]), f(2, 3)),
    case("ScatterND", f(4, 3), i([1], [1]), f(2, 3), opset=18, reduction="add"),
    case("ScatterElements", f(3, 3), i([0, 2, 1]), f(1, 3), axis=0),
    case("ScatterElements", f(3, 3), i([0, 0, 1]), f(1, 3), opset=18, axis=1, reduction="max"),
    case("OneHot", i(1, -1, 0), i(3)[0], np.array([2, 5], np.float32), axis=0),
    case("TopK", f(3, 6), i(2), n=2, axis=1, largest=0),
    case("ArgMax", np.array([[1, 3, 3], [2, 2, 0]], np.float32), axis=1, select_last_index=1),
    case("CumSum", f(3, 4), i(1)[0], exclusive=1, reverse=1),
    case("ReverseSequence", f(4, 3), i(2, 4, 1), time_axis=0, batch_axis=1),
    case("NonZero", np.array([[1, 0], [0, 2]], np.float32)),
    case("Compress", f(3, 4), np.array([True, False, True]), axis=0),
    case("Unique", np.array([3, 1, 3, 2], np.float32), n=4),
    case("Where", np.array([True, False]), f(2, 2), f(2)),
    case("ReduceSum", f(2, 3, 4), i(0, 2), keepdims=0),
    case("ReduceMean", f(2, 3, 4), axes=[1]),
    case("ReduceLogSumExp", f(2, 3) + 90, axes=[1]),
    case("ReduceMax", f(2, 3), i(1), opset=18),
    case("Softmax", f(2, 3, 4), axis=1),
    case("LogSoftmax", f(2, 3, 4), axis=1),
    case("Hardmax", f(2, 3), axis=1),
    case("MatMul", f(2, 3, 4), f(4, 5)),
    case("Gemm", f(3, 4), f(5, 4), f(5), transB=1),
    case("Gemm", f(4, 3), f(4, 5), f(3, 1), transA=1, alpha=0.5, beta=2.0),
    case("Einsum", f(2, 3, 4), f(2, 4, 5), equation="bij, bjk -> bik"),
    case("Conv", f(1, 4, 5, 5), f(6, 2, 3, 3), f(6), group=2, pads=[0, 1, 2, 1]),
    case("Conv", f(1, 2, 6, 5), f(3, 2, 3, 3), auto_pad="SAME_LOWER", strides=[2, 2]),
    case("Conv", f(1, 2, 9), f(3, 2, 3), dilations=[2]),
    case("ConvTranspose", f(1, 2, 3, 3), f(2, 3, 3, 3), f(3), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("ConvTranspose", f(1, 2, 3, 3), f(2, 3, 3, 3), strides=[2, 2], output_padding=[1, 1]),
    case("MaxPool", f(1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0]),
    case("MaxPool", f(1, 2, 7, 7), kernel_shape=[2, 2], dilations=[2, 2]),
    case("MaxPool", f(1, 1, 5, 5), kernel_shape=[2, 2], strides=[2, 2], n=2),
    case("AveragePool", f(1, 2, 6, 6), kernel_shape=[3, 3], pads=[1, 1, 0, 0]),
    case("AveragePool", f(1, 1, 4, 4), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("GlobalAveragePool", f(2, 3, 4, 4)),
    case("BatchNormalization", f(2, 3, 4), f(3), f(3), f(3), np.abs(f(3))),
    case("InstanceNormalization", f(2, 3, 4), f(3), f(3)),
    case("LayerNormalization", f(2, 3, 4), f(3, 4), f(3, 4), axis=1),
    case("Resize", f(1, 1, 4, 4), None, np.array([1, 1, 2, 1.5], np.float32), mode="linear"),
    case("Resize", f(1, 1, 4, 4), None, None, i(1, 1, 3, 7), mode="cubic"),
    case("Resize", f(1, 1, 4, 4), None, None, i(1, 1, 8, 3), mode="nearest"),
    case("LSTM", f(3, 2, 4), f(2, 12, 4), f(2, 12, 3), f(2, 24), hidden_size=3,
         direction="bidirectional", n=3),
    case("LSTM", f(3, 2, 4), f(1, 12, 4), f(1, 12, 3), f(1, 24), None, f(1, 2, 3), f(1, 2, 3),
         f(1, 9), hidden_size=3, n=3),
    case("GRU", f(3, 2, 4), f(1, 9, 4), f(1, 9, 3), f(1, 18), hidden_size=3, n=2),
    case("GRU", f(3, 2, 4), f(1, 9, 4), f(1, 9, 3), f(1, 18), hidden_size=3,
         linear_before_reset=1, n=2),
    case("LSTM", f(1, 2, 4), f(1, 12, 4), f(1, 12, 3), f(1, 24), hidden_size=3, n=3),
    case("RNN", f(3, 2, 4), f(1, 3, 4), f(1, 3, 3), hidden_size=3, n=2),
    case("QuantizeLinear", f(3, 4), np.float32(0.02), np.uint8(128)),
    case("DequantizeLinear", u(2, 3), np.array([0.1, 0.2, 0.3], np.float32), u(3), axis=1,
         opset=21),
    case("DynamicQuantizeLinear", f(3, 4), n=3),
    case("MatMulInteger", u(3, 4), u(4, 2), np.uint8(3), np.uint8(7)),
    case("ConvInteger", u(1, 2, 4, 4), u(3, 2, 3, 3), np.uint8(9)),
    case("QLinearMatMul", u(3, 4), np.float32(0.02), np.uint8(120), u(4, 2), np.float32(0.03),
         np.uint8(110), np.float32(0.05), np.uint8(130)),
    case("QLinearConv", u(1, 2, 4, 4), np.float32(0.02), np.uint8(120), u(3, 2, 3, 3),
         np.array([0.01, 0.02, 0.03], np.float32), np.array([100, 110, 120], np.uint8),
         np.float32(0.1), np.uint8(127)),
    case("DFT", f(1, 6, 1), axis=1),
    case("STFT", f(1, 12, 1), i(3)[0], np.hanning(6).astype(np.float32)),
    case("GridSample", f(1, 2, 4, 4), f(1, 3, 3, 2), opset=20, mode="linear",
         padding_mode="border"),
    case("Det", f(2, 3, 3)),
    case("HammingWindow", i(5)[0]),
]  # fmt: skip


def model_of(nodes: list, inputs: dict, outputs: list, opset: int = 17, **given: Any) -> Any:
    """A ModelProto. inputs: name -> array; outputs: names."""
    infos = [
        make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in inputs.items()
    ]
    results = [make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    functions, opsets = given.pop("functions", []), given.pop("opsets", [])
    graph = make_graph(nodes, "net", infos, results, **given)
    imports = [helper.make_opsetid("", opset), *opsets]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)


def model_of_case(c: Case) -> tuple[Any, dict]:
    """(the model, its inputs)."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(c.inputs)]
    outputs = [f"y{k}" for k in range(c.n_outputs)]
    inputs = {n: np.asarray(x) for n, x in zip(names, c.inputs) if x is not None}
    node = make_node(c.op, names, outputs, **c.attrs)
    return model_of([node], inputs, outputs, c.opset), inputs

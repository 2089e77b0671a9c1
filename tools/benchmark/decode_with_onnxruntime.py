"""Decoding on ONNX Runtime: see decode_timing.py. Caches are bound to inputs and outputs alike, and
GroupQueryAttention writes into them in place. Modes: float32, int8 (weights in blocks of 128,
MatMulNBits, which rounds activations to 8 bits too)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import onnxruntime
from decode_timing import Sizes, serve, weights_of
from onnx import TensorProto, helper, numpy_helper

MICROSOFT, BLOCK = "com.microsoft", 128


class Graph:
    """Nodes and initializers of a decoder."""

    def __init__(self, s: Sizes, mode: str):
        self.s, self.mode, self.w = s, mode, weights_of(s)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, op: str, inputs: list[str], outputs: Any = 1, **attrs: Any) -> Any:
        """The names of a node's outputs."""
        names = outputs
        if isinstance(outputs, int):
            names = [f"{op}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0] if len(names) == 1 else names

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def dense(self, x: str, name: str) -> str:
        w = self.w[f"{name}.weight"]
        if self.mode == "int8":
            n_out, n_in = w.shape
            blocks = w.reshape(n_out, n_in // BLOCK, BLOCK)
            scale = np.abs(blocks).max(2, keepdims=True) / 127
            whole = (np.rint(blocks / scale) + 128).astype(np.uint8)
            inputs = [self.constant(name, whole), self.constant(f"{name}.s", scale.reshape(-1))]
            sizes = {"K": n_in, "N": n_out, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
            x = self.add("MatMulNBits", [x, *inputs], domain=MICROSOFT, **sizes)
        else:
            x = self.add("MatMul", [x, self.constant(name, w.T)])
        bias = self.w.get(f"{name}.bias")
        return x if bias is None else self.add("Add", [x, self.constant(f"{name}.bias", bias)])

    def normed(self, x: str, name: str) -> str:
        both = [self.constant(n, self.w[n]) for n in (f"{name}.gamma", f"{name}.beta")]
        return self.add("LayerNormalization", [x, *both], axis=-1, epsilon=1e-5)

    def build(self) -> Any:
        s, add = self.s, self.add
        heads = {"num_heads": s.heads, "kv_num_heads": s.heads, "domain": MICROSOFT}
        tables = [self.constant(n, self.w[n]) for n in ("tokens", "places")]
        x = add("Add", [add("Gather", [tables[0], "ids"]), add("Gather", [tables[1], "at"])])
        for i in range(s.layers):
            qkv = self.dense(self.normed(x, f"norm{i}"), f"qkv{i}")
            q, k, v = add("Split", [qkv], 3, axis=-1, num_outputs=3)
            past, present = ([f"{t}_{c}{i}" for c in "kv"] for t in ("past", "present"))
            inputs = [q, k, v, *past, "before", "total"]
            y, *_ = add("GroupQueryAttention", inputs, [f"attended{i}", *present], **heads)
            x = add("Add", [x, self.dense(y, f"out{i}")])
            y = add("Gelu", [self.dense(self.normed(x, f"norm_up{i}"), f"up{i}")])
            x = add("Add", [x, self.dense(y, f"down{i}")])
        x = add("Gather", [x, self.constant("last", np.array([-1]))], axis=1)
        y = self.dense(self.normed(x, "norm"), "scores")
        add("ArgMax", [y], ["next"], axis=2, keepdims=0)
        info, whole = helper.make_tensor_value_info, TensorProto.INT64
        shape = (1, s.heads, s.length, s.units // s.heads)
        caches = [
            [f"{t}_{c}{i}" for i in range(s.layers) for c in "kv"] for t in ("past", "present")
        ]
        floats = [[info(n, TensorProto.FLOAT, shape) for n in names] for names in caches]
        inputs = [info("ids", whole, (1, "n")), info("at", whole, ("n",))]
        inputs += [info("before", TensorProto.INT32, (1,)), info("total", TensorProto.INT32, (1,))]
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            inputs + floats[0],
            [info("next", whole, (1, 1)), *floats[1]],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10), caches, shape


def make(s: Sizes, mode: str) -> Any:
    model, (past, present), shape = Graph(s, mode).build()
    onnx.checker.check_model(model, full_check=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    kept = [value(np.zeros(shape, np.float32)) for _ in past]
    binding = session.io_binding()
    for a, b, array in zip(past, present, kept):
        binding.bind_ortvalue_input(a, array)
        binding.bind_ortvalue_output(b, array)
    result = value(np.zeros((1, 1), np.int64))
    binding.bind_ortvalue_output("next", result)

    def step(tokens: Any, position: int) -> Any:
        n = tokens.shape[1]
        binding.bind_cpu_input("ids", tokens)
        binding.bind_cpu_input("at", np.arange(position, position + n))
        binding.bind_cpu_input("before", np.array([position + n - 1], np.int32))
        binding.bind_cpu_input("total", np.array([position + n], np.int32))
        session.run_with_iobinding(binding)
        return result.numpy()

    return step


if __name__ == "__main__":
    serve(make)

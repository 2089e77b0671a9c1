"""ONNX's conformance models, run on arrays and as graphs: make onnx-conformance SUITE=folder.

SUITE: the folder `onnx/backend/test/data/node` of the wheel of onnx 1.13.1 (later wheels have no
data of nodes). Prints the cases that fail and are not in EXPECTED, the operators in EXPECTED with
the reason, then the totals.
"""

from __future__ import annotations

import argparse
import collections
import glob
import os
import sys
import traceback
import warnings

import numpy as np
import onnx
import plait as mx
from onnx import numpy_helper
from plait.compat.onnx.load.graph import read_graph
from plait.compat.onnx.load.weights import static_inputs
from plait.kernels.spec import NUMPY_DTYPES

# what is not counted, by part of a case's name or operator: reason
OUTSIDE = {
    "ai.onnx.preview.training": "training",
    "ai.onnx.ml": "ai.onnx.ml",
    "strings": "strings",
    "sequences": "sequences and optional values as inputs or outputs",
}

# cases that fail, by the start of their name: why
EXPECTED = {
    "test_bernoulli": "random numbers of another generator",
    "test_training_dropout": "random numbers of another generator",
    "test_cast_BFLOAT16_to_FLOAT": "the data are uint16, the model says bfloat16",
    "test_cast_FLOAT_to_BFLOAT16": "the data are uint16, the model says bfloat16",
    "test_castlike_BFLOAT16_to_FLOAT": "the data of `like` have another rank than the model says",
    "test_castlike_FLOAT_to_BFLOAT16": "the data of `like` have another rank than the model says",
    "test_col2im_pads": "the expected sum lacks a column; later wheels have ours",
    "test_resize_downsample_scales_cubic_align_corners": "expected with a length of 2.4 elements,"
    " not the whole number that there are",
    "test_resize_downsample_scales_linear_align_corners": "expected with a length of 2.4 elements,"
    " not the whole number that there are",
    "test_tfidfvectorizer": "TfIdfVectorizer is for text",
}


def values(folder: str, kind: str) -> list:
    """The protos of a data set, in order."""
    files = sorted(glob.glob(f"{folder}/{kind}_*.pb"), key=lambda f: int(f.split("_")[-1][:-3]))
    return [open(f, "rb").read() for f in files]


def tensor(content: bytes) -> np.ndarray:
    proto = onnx.TensorProto.FromString(content)
    x = numpy_helper.to_array(proto)
    return x.view(np.uint16).view(NUMPY_DTYPES["bfloat16"]) if proto.data_type == 16 else x


def outside(model) -> str | None:
    """Why a model is not counted."""
    for node in model.graph.node:
        for domain in ("ai.onnx.preview.training", "ai.onnx.ml"):
            if node.domain == domain:
                return OUTSIDE[domain]
    for info in (*model.graph.input, *model.graph.output):
        if not info.type.HasField("tensor_type"):
            return OUTSIDE["sequences"]
        if info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            return OUTSIDE["strings"]
    return None


def number(x: np.ndarray) -> np.ndarray:
    if x.dtype == NUMPY_DTYPES["bfloat16"]:
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x


def run(model, inputs: list, expected: list, traced: bool) -> None:
    """Raises where the outputs are others than expected."""
    names = [i.name for i in model.graph.input]
    given = dict(zip(names, inputs))
    constants = {}
    if traced:  # what decides shapes is part of a graph
        constants = {n: given.pop(n) for n in static_inputs(read_graph(model)) if n in given}
        if not given:
            return
    net = mx.onnx.load(model, constants=constants)
    net.hybridize(traced)
    names = [i.name for i in net.inputs]
    arrays = [mx.np.array(given[n], dtype=i.dtype) for n, i in zip(names, net.inputs)]
    found = net(*arrays)
    found = found if isinstance(found, list) else [found]
    for want, got in zip(expected, found):
        have = got.asnumpy()
        if have.dtype != want.dtype:
            raise AssertionError(f"dtype {have.dtype}, expected {want.dtype}")
        if have.shape != want.shape:
            raise AssertionError(f"shape {have.shape}, expected {want.shape}")
        low = want.dtype in (np.float16, NUMPY_DTYPES["bfloat16"])
        np.testing.assert_allclose(
            number(have), number(want), rtol=1e-2 if low else 1e-3, atol=1e-2 if low else 1e-6
        )


def case(folder: str) -> tuple[str, str | None, str | None]:
    """(operators, failure, why it is not counted)."""
    model = onnx.load(f"{folder}/model.onnx")
    kinds = sorted({n.op_type for n in model.graph.node})
    name = (
        kinds[0]
        if len(kinds) == 1
        else "functions written out"
        if len(kinds) > 2
        else "+".join(kinds)
    )
    why = outside(model)
    if why:
        return name, None, why
    data = f"{folder}/test_data_set_0"
    try:
        inputs, outputs = ([tensor(p) for p in values(data, k)] for k in ("input", "output"))
        for traced in (False, True):
            run(model, inputs, outputs, traced)
    except Exception as error:
        if os.environ.get("ONNX_TRACE"):
            traceback.print_exc()
        return name, f"{type(error).__name__}: {' '.join(str(error).split())[:150]}", None
    return name, None, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite")
    parser.add_argument("cases", nargs="*", help="parts of names; default: all")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    passed, failed = collections.Counter(), collections.defaultdict(list)
    left_out = collections.Counter()
    for folder in sorted(os.listdir(args.suite)):
        if args.cases and not any(c in folder for c in args.cases):
            continue
        name, failure, why = case(f"{args.suite}/{folder}")
        if why:
            left_out[why] += 1
        elif failure:
            failed[name].append((folder, failure))
        else:
            passed[name] += 1
    unexpected, reasons = 0, collections.Counter()
    for name, rows in sorted(failed.items()):
        for folder, failure in rows:
            why = next((w for start, w in EXPECTED.items() if folder.startswith(start)), None)
            if why is None:
                unexpected += 1
                print(f"{folder}: {failure}")
            else:
                reasons[name, why] += 1
    for (name, why), n in sorted(reasons.items()):
        print(f"{name}: {passed[name]} pass, {n} fail: {why}")
    bad, good = sum(map(len, failed.values())), sum(passed.values())
    print(f"{good} of {good + bad} pass ({100 * good / max(1, good + bad):.1f} %)")
    for why, n in sorted(left_out.items()):
        print(f"not counted, {why}: {n}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())

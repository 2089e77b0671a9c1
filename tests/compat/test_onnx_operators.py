"""Every operator with samples as an ONNX model of one node: valid, and equal in onnx's reference
evaluator."""

import re

import numpy as np
import onnx
import onnx_reference
import pytest
import samples
from plait import nd
from plait import onnx as mx_onnx
from plait.compat.onnx.export.inputs import network
from plait.compat.onnx.export.rule import REASONS
from plait.engine.error import DynamicShape
from plait.graph.graph import Node, Value, variable
from plait.kernels.record import REGISTRY, Type
from plait.kernels.spec import NUMPY_DTYPES
from plait.kernels.traits import Eager, WeightUpdate
from plait.ndarray.invoke import invoke
from plait.symbol import Symbol

# operators of gradients, optimizers and generators are no part of a network that predicts
OPERATORS = sorted(
    {
        op.name: op
        for op in REGISTRY.values()
        if op.samples
        and op.random is not True
        and not op.has(WeightUpdate)
        and not any(part in op.name for part in ("_grad", "_update", "_backward"))
    }.items()
)
# samples of operators that are written for other attributes: what the error says
PARTLY = {
    "_np_reshape": "Fortran's order",
    "_npi_einsum": "einsum with ...",
    "_npi_norm": "norm with ord|ONNX factors",
    "_npi_delete": "depends on values",
    "_npi_pad": "pad with several values|pad",
    "Dropout": "dropout in prediction of whole axes",
    "_contrib_ROIAlign": "looks at values",
}
NEEDS_18 = "needs opset_version=1[4-8] or higher"
# dropout that draws in prediction: other numbers
DRAWS = {("Dropout", 2), ("Dropout", 4)}
# bytes of another range: halves are rounded either way
ONE_STEP = {"_contrib_quantized_concat"}


def arrays_of(op, case):
    rng = np.random.default_rng(7)
    made = []
    for given in case.inputs:
        x, own = samples.draw(rng, given)
        dtype = own or samples.usual_dtype(op)
        if samples.kind_of(given) in ("normal", "uniform") and "float" not in dtype:
            x = np.trunc(3 * x)
        x = np.abs(x) if dtype.startswith("u") else x
        made.append(nd.array(x, dtype=NUMPY_DTYPES[dtype]))
    return made


def exported(op, case, opset, path):
    """(model, its inputs, plait's outputs) of one sample."""
    arrays = arrays_of(op, case)
    attrs = op.counted(dict(case.attrs), len(arrays))
    inputs = [variable(f"x{i}", Type(tuple(a.shape), a._spec.dtype)) for i, a in enumerate(arrays)]
    node = Node(op, op.parse(attrs), inputs, "node")
    symbol = Symbol([Value(node, i) for i in range(node.n_visible)])
    feeds = {f"x{i}": a.asnumpy() for i, a in enumerate(arrays)}
    states = {n: nd.array(feeds[n]) for n in symbol.list_auxiliary_states()}
    taken = network(symbol, states).inputs
    file = mx_onnx.export_model(
        symbol,
        states,
        {n: feeds[n].shape for n in taken},
        [feeds[n].dtype for n in taken],
        path,
        opset_version=opset,
    )
    made = invoke(op, arrays, attrs)
    want = [x.asnumpy() for x in (made if isinstance(made, (list, tuple)) else [made])]
    return onnx.load(file), feeds, want


def as_float(x):
    x = np.asarray(x)
    return (
        x if x.dtype != NUMPY_DTYPES["bfloat16"] else nd.array(x).astype("float32").asnumpy()
    ).astype(np.float64)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name, op", OPERATORS, ids=[n for n, _ in OPERATORS])
def test_samples_agree(name, op, opset, tmp_path):
    if name in REASONS:
        return
    for i, case in enumerate(op.samples if opset == 17 else op.samples[:1]):
        try:
            model, feeds, want = exported(op, case, opset, tmp_path / "model.onnx")
        except (mx_onnx.OnnxError, DynamicShape) as error:
            allowed = [PARTLY.get(name, NEEDS_18), *([NEEDS_18] if opset < 18 else [])]
            assert any(re.search(a, str(error)) for a in allowed), error
            continue
        onnx.checker.check_model(model, full_check=True)
        taken = {x.name for x in model.graph.input}
        got = onnx_reference.run(model, {k: v for k, v in feeds.items() if k in taken})
        for a, b in zip(want, got, strict=True):
            assert a.shape == np.shape(b), (i, a.shape, np.shape(b))
            if (name, i) not in DRAWS:
                step = int(name in ONE_STEP and a.dtype.kind in "iu")
                np.testing.assert_allclose(
                    as_float(b), as_float(a), 2e-5, step or 2e-6, err_msg=str(i)
                )


@pytest.mark.parametrize("name", sorted(set(REASONS) & {n for n, _ in OPERATORS}))
def test_what_has_no_form_says_why(name, tmp_path):
    op = REGISTRY[name]
    if op.has(Eager):  # a graph that holds it has no shapes
        return
    with pytest.raises(ValueError):
        for case in op.samples:
            exported(op, case, 21, tmp_path / "model.onnx")

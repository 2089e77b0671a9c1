"""Inference from partly unknown shapes: for every operator record, what follows from a part of the
types of a sample is true of the whole types, and what is known in full stays."""

import numpy as np
import pytest
import samples
from plait.engine.error import DynamicShape, OperatorError
from plait.kernels import ops  # noqa: F401 - fills the registry
from plait.kernels.partial import NOTHING, Known, complete
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type, elementwise

CASES = [
    pytest.param(op, s, id=f"{name}-{i}")
    for name, op in REGISTRY.items()
    if name == op.name
    for i, s in enumerate(op.samples)
]


def types_of(op, sample):
    """(complete attributes, types of inputs, of outputs) of a sample; None where only a run
    tells."""
    rng = np.random.default_rng(0)
    attrs = {k: v for k, v in sample.attrs.items() if k != op.variadic_key}
    if op.variadic_key:
        attrs[op.variadic_key] = len(sample.inputs)
    attrs = op.parse(attrs)
    if op.train_aware:
        attrs["train"] = False
    ins = []
    for given in sample.inputs:
        x, own = samples.draw(rng, given)
        ins.append(Type(tuple(x.shape), own or samples.usual_dtype(op)))
    try:
        return attrs, ins, infer(op, attrs, ins)
    except DynamicShape:
        return None


def masks(types, may_be_missing):
    """Ways to forget sizes: one of each array, one of all arrays, all of one, all."""
    whole = [Known(t.shape, t.dtype) for t in types]

    def forget(known, axes):
        shape = tuple(None if i in axes else n for i, n in enumerate(known.shape))
        return Known(shape, known.dtype)

    for i, k in enumerate(whole):
        for axis in range(len(k.shape)):
            yield [*whole[:i], forget(k, {axis}), *whole[i + 1 :]]
        yield [*whole[:i], forget(k, set(range(len(k.shape)))), *whole[i + 1 :]]
        if may_be_missing(i):
            yield [*whole[:i], Known(None, k.dtype), *whole[i + 1 :]]
    for axis in range(max([len(k.shape) for k in whole], default=0)):
        yield [forget(k, {axis}) for k in whole]
    yield [forget(k, set(range(len(k.shape)))) for k in whole]


def fits(known, t):
    return known.shape is None or (
        len(known.shape) == len(t.shape)
        and all(a is None or a == b for a, b in zip(known.shape, t.shape))
    )


@pytest.mark.parametrize("op, sample", CASES)
def test_what_follows_from_a_part_is_true(op, sample):
    found = types_of(op, sample)
    if found is None:
        return
    attrs, ins, outs = found
    if any(0 in t.shape for t in (*ins, *outs)) or () in [t.shape for t in ins]:
        return  # in inference, as in MXNet's, an input that is not known has at least one axis
    if op.fill is elementwise and len({t.shape for t in ins}) > 1:
        return  # MXNet's rule for elementwise operators, plait's broadcast all the same
    whole = [Known(t.shape, t.dtype) for t in outs]

    def as_filled(i):  # a record's `fill` says what an input is if nothing else is said
        without = [None if k == i else t for k, t in enumerate(ins)]
        given = {k: v for k, v in attrs.items() if k != "train"}
        return op.fill is None or not any(without) or op.fill(without, **given)[i] in (None, ins[i])

    for given in masks(ins, as_filled):
        for wanted in ([NOTHING] * len(outs), whole):
            made_ins, made_outs = complete(op, attrs, given, wanted)
            for known, before, t in zip([*made_ins, *made_outs], [*given, *wanted], [*ins, *outs]):
                assert fits(known, t), (given, wanted, made_ins, made_outs)
                assert before.shape is None or (
                    known.shape is not None
                    and all(b is None or a == b for a, b in zip(known.shape, before.shape))
                )


def test_what_contradicts_is_refused():
    dense = REGISTRY["FullyConnected"]
    attrs = dense.parse({"num_hidden": 3, "no_bias": True})
    ins = [Known((None, 5), "float32"), Known((3, 6), "float32")]
    with pytest.raises(OperatorError, match="weight must have shape"):
        complete(dense, attrs, ins, [NOTHING])

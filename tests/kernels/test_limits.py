"""Limits of parameters: no attribute makes inference, a graph or a file too large; errors are
plait's, wherever an operator is called from."""

import json
import tracemalloc

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd, sym
from plait.engine.error import MXNetError, OperatorError
from plait.kernels.plan import infer
from plait.kernels.record import ANY, COUNT, INT32, LARGE, REACH, REGISTRY, Param, Type

from ..samples import draw, shape_of

RECORDS = sorted({op.name: op for op in REGISTRY.values()}.items())
WHOLE = ("int", "int?", "shape", "shape?")
BOUNDED = [
    (op, p)
    for _, op in RECORDS
    for p in op.params
    if p.kind in WHOLE and op.samples and not p.dynamic
]


def types_of(op):
    given = op.samples[0].inputs
    rng = np.random.default_rng(0)
    return [Type(shape_of(g), draw(rng, g)[1] or "float32") for g in given]


def test_every_whole_number_has_limits():
    """Of a `float`, what `infer` makes of it is bounded in bytes."""
    for _, op in RECORDS:
        for p in op.params:
            if p.kind in WHOLE:
                assert p.limits is not None and ANY[0] <= p.limits[0] <= p.limits[1] <= ANY[1], op
                sized = p.kind.startswith("int") and p.limits != ANY  # a number to draw is none
                assert not sized or p.limits[1] <= LARGE[1], (op, p)
            if p.name == op.variadic_key:
                assert p.limits == COUNT, op


@pytest.mark.parametrize("op, p", BOUNDED, ids=lambda x: x.name)
def test_inference_ends_at_the_limits(op, p):
    """With each parameter at its limits: types, of few outputs, or a MXNetError."""
    ins, base = types_of(op), op.samples[0].attrs
    for n in (*p.limits, *COUNT, *REACH, *INT32, *LARGE):
        for value in [n] if p.kind.startswith("int") else [(n,), (n, n)]:
            try:
                attrs = op.parse({**base, p.name: value})
                if op.train_aware:
                    attrs["train"] = True
                assert op.outputs(attrs) <= COUNT[1]
                outs = infer(op, attrs, ins)
            except MXNetError:
                continue
            assert len(outs) <= COUNT[1]


@pytest.mark.parametrize("value", [10**9, 2**31 - 1, 10**15, -1])
@pytest.mark.parametrize(
    "name, parameter",
    [
        ("multi_sgd_update", "num_weights"),
        ("_multi_lamb_update", "num_tensors"),
        ("_multi_adamw_update", "num_weights"),
        ("_attention", "n_sources"),
        ("SliceChannel", "num_outputs"),
        ("_split_v2", "sections"),
        ("amp_multicast", "num_outputs"),
        ("RNN", "num_layers"),
        ("multi_sum_sq", "num_arrays"),
    ],
)
def test_counts_are_bounded_in_files_symbols_and_calls(name, parameter, value):
    op = REGISTRY[name]
    given = op.samples[0]
    n, attrs = len(given.inputs), {**given.attrs, parameter: value}
    variables = [{"op": "null", "name": f"v{i}", "inputs": []} for i in range(n)]
    node = {
        "op": name,
        "name": "y",
        "attrs": {k: str(v) for k, v in attrs.items()},
        "inputs": [[i, 0, 0] for i in range(n)],
    }
    text = json.dumps({"nodes": [*variables, node], "heads": [[n, 0, 0]]})
    with pytest.raises(OperatorError, match=f"{parameter} must be between"):
        sym.load_json(text)
    with pytest.raises(OperatorError, match=f"{parameter} must be between"):
        op.parse(attrs)
    if parameter != op.variadic_key:
        with pytest.raises(OperatorError, match=f"{parameter} must be between"):
            getattr(sym.functions, name)(*(sym.var(f"v{i}") for i in range(n)), **attrs)


def test_samples_of_a_region_are_bounded():
    x, rois = nd.ones((1, 1, 8, 8)), nd.array([[0, 0, 0, 4, 4]])
    with pytest.raises(OperatorError, match="sample_ratio must be between -1 and 256"):
        nd.contrib.ROIAlign(x, rois, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=10**15)


def test_a_parameter_of_a_record_keeps_the_limits_that_it_states():
    p = Param("n", "int", 1, limits=(1, 3))
    assert REGISTRY["_attention"].params[REGISTRY["_attention"].param_index["n_sources"]] == (
        p._replace(name="n_sources")
    )


# ---- what is wrong is said in plait's words ------------------------------------------------------

x = nd.ones((2, 3))
SCALAR = nd.array(np.float32(3))
CALLS = {
    "too few inputs of an operator that runs at once": lambda: nd.contrib.boolean_mask(x),
    "none of them": lambda: nd.contrib.boolean_mask(),
    "no end": lambda: nd.slice(x, begin=(0,), end=None),
    "no begin": lambda: x.slice(begin=None, end=(1,)),
    "arrays as steps": lambda: nd.slice(x, begin=(0,), end=(1,), step=np.ones(2)),
    "a text for a number that changes": lambda: nd.sgd_update(x, x, lr="fast"),
    "a tuple for a number that changes": lambda: nd.sgd_update(x, x, lr=(0.1, 0.2)),
    "a text for one of several": lambda: nd.multi_sgd_update(x, x, lrs=("a",), wds=(0.1,)),
    "deep JSON": lambda: sym.load_json("[" * 100_000),
    "deep nodes": lambda: sym.load_json('{"nodes":' * 100_000),
    "deep JSON of an initializer": lambda: mx.init.create("[" * 100_000),
    "deep JSON of an optimizer": lambda: mx.registry.get_create_func(mx.init.Zero, "zero")(
        "{" * 10**5
    ),
    "a deep text as a shape": lambda: nd.zeros("(" * 5000),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_bad_input_is_a_plait_error(call):
    nd.sgd_update(x, x, lr=0.1)  # its plan is there: the short way is taken
    nd.multi_sgd_update(x, x, lrs=(0.1,), wds=(0.1,))
    with pytest.raises(MXNetError):
        call()


def test_a_number_as_text_is_taken_on_the_short_way_too():
    for lr in (0.5, "0.5"):
        assert nd.sgd_update(nd.ones(2), nd.ones(2), lr=lr).asnumpy()[0] == 0.5


def test_errors_are_short_however_long_the_value():
    with pytest.raises(OperatorError) as raised:
        nd.one_hot(x, depth="9" * 100_000)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_the_loss_of_one_number(normalization):
    a = SCALAR.copy()
    a.attach_grad()
    with autograd.record():
        y = nd.MakeLoss(a, grad_scale=2.0, normalization=normalization)
    y.backward()
    assert a.grad.shape == () and a.grad.asscalar() == 2


def test_a_gradient_that_fails_says_which(monkeypatch):
    op = REGISTRY["relu"]
    monkeypatch.setattr(op, "grad", lambda F, dys, xs, ys: [xs[0].shape[7]])
    a = nd.ones((2, 9))
    a.attach_grad()
    with autograd.record(), pytest.raises(OperatorError, match=r"relu: has no gradient for .*9\)"):
        nd.relu(a).backward()


def test_probabilities_of_dropout_lie_between_0_and_1():
    """As in MXNet. Dropout with 1.5 scaled what it kept by -2."""
    dropping = [(name, op) for name, op in RECORDS if "_random_" not in name]
    found = {name: p.limits for name, op in dropping for p in op.params if p.name == "p"}
    assert {"Dropout", "RNN", "_attention_grad"} <= set(found)
    assert set(found.values()) == {(0, 1)}, found
    for wrong in (1.5, -0.5):
        with pytest.raises(mx.MXNetError, match="p must be between 0 and 1"):
            nd.Dropout(nd.ones((3,)), p=wrong)


@pytest.mark.parametrize("scale", [1e15, -1.0, float("nan"), float("inf")])
def test_scales_of_regions_have_limits(scale):
    """They decide how many samples are taken: MXNet's limits, [0, 1]. 1e15 ran for ever."""
    sized = [(op, p) for _, op in RECORDS for p in op.params if p.name == "spatial_scale"]
    assert len(sized) >= 5
    for op, p in sized:
        attrs = {**op.samples[0].attrs, p.name: scale}
        with pytest.raises(OperatorError, match="spatial_scale must be between 0 and 1, got"):
            op.parse(attrs)


def test_samples_of_turned_regions_are_bounded_whatever_the_regions_say():
    """A region of a million pixels asked for 4096 x 4096 samples a bin: gigabytes. Its mean is that
    of a constant image all the same, since the image covers all of it that counts."""
    x = nd.full((1, 2, 6, 6), 3.0)
    rois = nd.array([[0, 3, 3, 4, 4, 30], [0, 3, 3, 1e6, 1e6, 30]])
    tracemalloc.start()
    try:
        y = nd.contrib.RROIAlign(x, rois, pooled_size=(2, 2), spatial_scale=1.0).asnumpy()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(y[0], 3, rtol=1e-6)
    assert (y[1] >= 0).all() and (y[1] <= 3).all() and peak < 1 << 30


@pytest.mark.parametrize("name", ["_all_reduce", "_all_gather", "_reduce_scatter", "_all_to_all"])
def test_a_rank_is_one_of_the_group(name):
    for rank in (-1, 2):
        with pytest.raises(mx.MXNetError, match="rank must be of 0 to 1"):
            op = REGISTRY[name]
            infer(op, op.parse({"ranks": (3, 5), "rank": rank}), [Type((2, 3), "float32")])

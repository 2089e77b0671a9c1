"""Attention on gpu(0) against NumPy, both ways: masks, lengths, strided operands, odd sizes."""

import numpy as np
import plait as mx
import pytest
from calls import TOLERANCE, back, call, close, on_gpu, reference
from plait import autograd, gluon, gpu, nd
from plait.kernels.record import REGISTRY

SIZES = {
    "odd": (2, 3, 70, 37, 24, 17),
    "one": (1, 1, 1, 1, 1, 1),
    "long": (1, 1, 5, 150, 40, 40),
    "wide": (1, 2, 20, 33, 130, 200),
}


def operands(rng, sizes, dtype):
    """Sources of three arrays (batch, head, row, element), and the attributes."""
    batch, heads, n_q, n_k, dim, dim_v = sizes
    shapes = [(n_q, dim), (n_k, dim), (n_k, dim_v)]
    arrays = [on_gpu(rng.standard_normal((batch, heads, *s)), dtype) for s in shapes]
    attrs = {x: (i, 0, heads * n * d, n * d, d) for i, (x, (n, d)) in enumerate(zip("qkv", shapes))}
    return arrays, attrs | {"n_sources": 3, "sizes": sizes, "scale": dim**-0.5}


def mask_of(rng, kind, sizes, dtype):
    batch, heads, n_q, n_k = sizes[:4]
    if kind == "length":
        lengths = rng.integers(0, n_k + 1, (batch, n_q))
        mask = nd.array(lengths, ctx=on_gpu(0.0).context, dtype="int32")
        return mask, {"mask": kind, "mask_view": (0, n_q, 0, 1, 0)}
    values = rng.standard_normal((batch, n_k))
    values = (values > -0.5) if kind == "where" else values
    view = {"mask": kind, "mask_view": (0, n_k, 0, 0, 1), "mask_value": -2.0}
    return on_gpu(values, dtype), view


def both_ways(sizes, dtype, kind, seed=0):
    rng = np.random.default_rng(seed)
    arrays, attrs = operands(rng, sizes, dtype)
    if kind:
        mask, view = mask_of(rng, kind, sizes, dtype)
        arrays, attrs = [*arrays, mask], attrs | view
    y, sums = call("_attention", *arrays, **attrs)
    want, want_sums = reference("_attention", *arrays, **attrs)
    close(y, want, dtype)
    assert np.abs(back(sums) - want_sums).max() <= 10 * TOLERANCE["float32"]
    dy = on_gpu(rng.standard_normal(y.shape), dtype)
    given = [dy, y, sums, *arrays]
    got = call("_attention_grad", *given, **attrs)
    for g, w in zip(got, reference("_attention_grad", *given, **attrs), strict=True):
        close(g, w, dtype)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("name", SIZES)
def test_both_ways(name, dtype):
    both_ways(SIZES[name], dtype, None)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("kind", ("add", "where", "length"))
def test_masks(kind, dtype):
    both_ways((2, 2, 9, 35, 16, 16), dtype, kind, 1)


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_packed_operands_that_leave_gaps(dtype):
    """One source holds all three, interleaved, and more: the gradient of the rest is 0."""
    rng = np.random.default_rng(2)
    x = on_gpu(rng.standard_normal((2, 5, 3, 40)), dtype)
    place = {x: (0, 8 * i, 600, 40, 120) for i, x in enumerate("qkv")}
    attrs = dict(sizes=(2, 3, 5, 5, 8, 8), **place, scale=0.3)
    y, sums = call("_attention", x, **attrs)
    close(y, reference("_attention", x, **attrs)[0], dtype)
    given = [on_gpu(rng.standard_normal(y.shape), dtype), y, sums, x]
    close(
        call("_attention_grad", *given, **attrs),
        reference("_attention_grad", *given, **attrs)[0],
        dtype,
    )


def test_a_query_that_no_key_answers():
    """Length 0: zeros, not NaN."""
    rng = np.random.default_rng(3)
    arrays, attrs = operands(rng, (1, 1, 2, 3, 4, 4), "float32")
    lengths = nd.array([0, 2], ctx=arrays[0].context, dtype="int32")
    attrs |= {"mask": "length", "mask_view": (0, 2, 0, 1, 0)}
    y = back(call("_attention", *arrays, lengths, **attrs)[0])
    assert (y[0, 0] == 0).all() and np.isfinite(y).all()


@pytest.mark.parametrize("kind", (None, "add", "length"))
@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize("name", ("odd", "long"))
def test_dropout(name, dtype, kind):
    """Both ways, with the bits of the forward kernel; these are Dropout's of the same seed."""
    rng, sizes = np.random.default_rng(4), SIZES[name]
    arrays, attrs = operands(rng, sizes, dtype)
    if kind:
        mask, view = mask_of(rng, kind, sizes, dtype)
        arrays, attrs = [*arrays, mask], attrs | view
    mx.random.seed(9)
    with autograd.train_mode():
        factors = nd.Dropout(nd.ones(sizes[:4]), p=0.3).asnumpy()
    mx.random.seed(9)
    y, sums, kept = call("_attention_dropout", *arrays, p=0.3, **attrs)
    n_k = sizes[3]
    bits = back(kept).astype(np.int64)[..., None] >> np.arange(32) & 1
    bits = bits.reshape(*sizes[:3], -1)
    np.testing.assert_array_equal(bits[..., :n_k] > 0, factors > 0)
    assert not bits[..., n_k:].any()
    plain, whole = REGISTRY["_attention"], ("int32", "int64")
    values = [a.asnumpy() if a._spec.dtype in whole else back(a) for a in arrays]
    close(y, plain.ref(np, *values, factors=factors, **plain.parse(attrs))[0], dtype)
    dy = on_gpu(rng.standard_normal(y.shape), dtype)
    given = [dy, y, sums, kept, *arrays]
    got = call("_attention_grad", *given, p=0.3, **attrs)
    for g, w in zip(got, reference("_attention_grad", *given, p=0.3, **attrs), strict=True):
        close(g, w, dtype)


@pytest.mark.parametrize("kind", ("add", "where", "length"))
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_tiles_without_a_score_are_left_out(kind, dtype):
    """Causal, and rows of which no key counts; what lies in such tiles is not read: NaN there."""
    n, rng = 150, np.random.default_rng(1)
    sizes = (1, 2, n, n, 16, 16)
    arrays, attrs = operands(rng, sizes, dtype)
    keys = np.arange(n)
    upto = np.maximum(keys - 70, 0 if kind == "length" else 1)
    seen = keys < upto[:, None]
    if kind == "length":
        mask = nd.array(upto[None], ctx=on_gpu(0.0).context, dtype="int32")
        view = {"mask": kind, "mask_view": (0, n, 0, 1, 0)}
    else:
        values = np.where(seen, 0.0, -np.inf) if kind == "add" else seen.astype(float)
        mask = on_gpu(values[None], dtype)
        view = {"mask": kind, "mask_view": (0, n * n, 0, n, 1), "mask_value": -1e18}
    arrays, attrs = [*arrays, mask], attrs | view
    y, sums = call("_attention", *arrays, **attrs)
    want, _ = reference("_attention", *arrays, **attrs)
    close(y, want, dtype)
    dy = on_gpu(rng.standard_normal(y.shape), dtype)
    given = [dy, y, sums, *arrays]
    wanted = reference("_attention_grad", *given, **attrs)
    for g, w in zip(call("_attention_grad", *given, **attrs), wanted, strict=True):
        close(g, w, dtype)
    k = back(arrays[1])
    k[:, :, 128:] = np.nan  # a tile that nobody looks at
    arrays[1] = on_gpu(k, dtype)
    again = call("_attention", *arrays, **attrs)[0]
    assert np.array_equal(back(again), back(y))


class Dropping(gluon.HybridBlock):
    def hybrid_forward(self, F, q, k, v):
        p = F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.3, axis=-1)
        return F.batch_dot(F.Dropout(p, p=0.4), v)


def trained(ctx, hybrid):
    rng, net = np.random.default_rng(0), Dropping()
    xs = [nd.array(rng.standard_normal((6, 20, 16)), ctx=ctx) for _ in "qkv"]
    if hybrid:
        net.hybridize()
    for x in xs:
        x.attach_grad()
    for step in range(4):
        if step == 2:
            mx.wait_compiled()
        mx.random.seed(5)
        with autograd.record():
            y = net(*xs)
        y.backward()
    return [a.asnumpy() for a in (y, *(x.grad for x in xs))]


def test_a_hybridized_block_drops_what_eager_code_on_the_cpu_drops():
    for got, want in zip(trained(gpu(0), True), trained(mx.cpu(), False), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)

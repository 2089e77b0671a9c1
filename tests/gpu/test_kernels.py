"""Our CUDA kernels at sizes where their paths change: nothing, one element, rows that are not held
in registers, sizes that no vector divides, arrays that begin anywhere, results that are shared."""

import numpy as np
import plait as mx
import pytest
from plait import cpu, gpu, nd

RNG = np.random.default_rng(3)


def draw(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def on(device, x, shifted=False):
    """x on a device; shifted: as a view that begins one element after an aligned address."""
    x = np.asarray(x)
    if not shifted or x.ndim == 0:
        return nd.array(x, ctx=device, dtype=x.dtype)
    flat = np.concatenate([np.zeros(1, x.dtype), x.reshape(-1)])
    return nd.array(flat, ctx=device, dtype=x.dtype)[1:].reshape(x.shape)


def both(name, *arrays, shifted=False, rtol=3e-5, atol=3e-5, **attrs):
    """The operator on gpu(0) gives what it gives on the CPU, in outputs and in what it writes."""
    got = []
    for device in (gpu(0), cpu()):
        inputs = [on(device, x, shifted) for x in arrays]
        outs = getattr(nd, name, None) or getattr(nd._internal, name)
        outs = outs(*inputs, **attrs)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        assert all(o.ctx == device for o in outs)
        got.append([a.asnumpy().astype("float64") for a in (*outs, *inputs)])
    for a, b in zip(*got, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("n", [0, 1, 255, 66000])
def test_pointwise_sizes(n, shifted):
    both("broadcast_add", draw(n), draw(n), shifted=shifted)


@pytest.mark.parametrize(
    "a, b",
    [
        ((30, 50, 64), (64,)),
        ((30, 50, 63), (63,)),
        ((30, 50, 64), (30, 1, 64)),
        ((30, 50, 64), (50, 1)),
        ((3, 4, 5, 6, 8), (4, 1, 6, 1)),
    ],
)
def test_broadcasting(a, b):
    both("broadcast_mul", draw(*a), draw(*b))


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((3, 5000), 1),
        ((3, 5000), 0),
        ((5000, 3), 0),
        ((17, 33, 65), (0, 2)),
        ((17, 33, 65), 1),
        ((200001,), None),
        ((3, 0), 1),
        ((0, 3), 1),
    ],
)
def test_sums(shape, axis):
    both("sum", draw(*shape), axis=axis, rtol=1e-4, atol=1e-4)


def test_a_sum_does_not_change_from_run_to_run():
    x = nd.array(draw(300001), ctx=gpu(0))
    assert len({float(x.sum().asscalar()) for _ in range(5)}) == 1


@pytest.mark.parametrize("n", [1, 7, 33, 1000, 1025, 5001, 40000])
def test_softmax_rows(n):
    both("softmax", draw(3, n))


def test_softmax_of_infinities_and_nothing():
    both("softmax", np.array([[-np.inf, 0, 1], [-np.inf] * 3, [np.nan, 0, 1]], "float32"))
    both("softmax", draw(2, 0, 3), axis=1)


@pytest.mark.parametrize("shape, axis", [((4, 37, 50), 1), ((2, 600, 3), 1), ((9, 4), 0)])
def test_softmax_columns(shape, axis):
    both("log_softmax", draw(*shape), axis=axis)


@pytest.mark.parametrize("n", [1, 33, 768, 9000])
def test_layer_norm(n):
    both("LayerNorm", draw(5, n), draw(n), draw(n), atol=1e-4)


@pytest.mark.parametrize("n", [64, 65])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_transpose_through_tiles(n, dtype):
    x = RNG.integers(0, 200, (3, n, 40)).astype(dtype)
    both("transpose", x, axes=(0, 2, 1))
    both("transpose", x, axes=(2, 0, 1), shifted=True)


def test_joins_of_many_and_of_empty_arrays():
    both("concat", *(draw(i % 3, 6) for i in range(40)), dim=0)
    both("concat", draw(3, 64), draw(3, 32), dim=1, shifted=True)
    both("split", draw(4, 12, 5), num_outputs=3, axis=1)


@pytest.mark.parametrize("n", [1, 64, 2049, 5000])
def test_sorts(n):
    x = np.round(draw(2, n) * 3)  # many equal ones
    both("argsort", x, is_ascend=False)
    both("topk", x, k=min(n, 5), ret_typ="both")


def test_sort_puts_nan_last_both_ways():
    x = np.array([[3, np.nan, -1, 0]], "float32")
    both("sort", x)
    both("sort", x, is_ascend=False)


@pytest.mark.parametrize("count, rows", [(1, 5), (5000, 20), (2500, 700)])
def test_embedding_gradient_of_repeated_rows(count, rows):
    places, dy = RNG.integers(0, rows, count).astype("float32"), draw(count, 33)
    grads = []
    for device in (gpu(0), gpu(0), cpu()):
        weight = nd.zeros((rows, 33), ctx=device)
        weight.attach_grad()
        with mx.autograd.record():
            y = nd.Embedding(nd.array(places, ctx=device), weight, input_dim=rows, output_dim=33)
        y.backward(nd.array(dy, ctx=device))
        grads.append(weight.grad.asnumpy())
    np.testing.assert_array_equal(grads[0], grads[1])
    np.testing.assert_allclose(grads[0], grads[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 4096, 10001])
def test_updates(n):
    w, g, m, v = draw(n), draw(n), draw(n), np.abs(draw(n))
    both("sgd_mom_update", w, g, m, lr=0.1, wd=0.01, momentum=0.9, clip_gradient=0.5)
    both("adam_update", w, g, m, v, lr=0.1, wd=0.01)


def test_updates_of_more_weights_than_one_launch_takes():
    n = 100
    arrays = [draw(i % 7 + 1) for i in range(n) for _ in range(2)]
    both("multi_sgd_update", *arrays, lrs=(0.1,) * n, wds=(0.01,) * n, num_weights=n)


def test_random_numbers_of_any_count():
    for n in (1, 3, 4, 1027):
        drawn = []
        for device in (gpu(0), cpu()):
            mx.random.seed(5)
            drawn.append(nd.random.normal(shape=(n,), ctx=device).asnumpy())
        np.testing.assert_allclose(*drawn, rtol=2e-5, atol=2e-5)


def test_cumulative_sums_longer_than_a_chunk():
    both("cumsum", draw(2, 3000), axis=1, atol=1e-3)
    both("cumsum", draw(300, 5), axis=0, atol=1e-3)

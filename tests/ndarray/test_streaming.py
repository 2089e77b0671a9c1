"""plait.stream: chunks through a device, joined on the host."""

import numpy as np
import plait as mx
import pytest
from plait import nd


@pytest.mark.parametrize("rows", [1, 3, 7, 10, 64, None])
@pytest.mark.parametrize("kind", [lambda x: nd.array(x, dtype=x.dtype), np.asarray])
def test_stream_computes_what_one_call_computes(rows, kind):
    x = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    w = nd.random.normal(shape=(3, 4), ctx=mx.cpu(1))

    def function(part, number):
        assert part.context == number.context == mx.cpu(1)
        return nd.FullyConnected(part, w, num_hidden=3, no_bias=True), number + 1

    y, numbers = mx.stream(
        function, kind(x), kind(np.arange(10, dtype="int32")), ctx=mx.cpu(1), rows=rows
    )
    assert y.context == numbers.context == mx.cpu() and numbers.dtype == np.int32
    np.testing.assert_allclose(y.asnumpy(), x @ w.asnumpy().T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(numbers.asnumpy(), np.arange(1, 11))


def test_stream_writes_into_out():
    out = nd.zeros((5, 2))
    assert mx.stream(lambda part: part + 1, nd.ones((5, 2)), rows=2, out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), np.full((5, 2), 2))


def test_stream_of_nothing_has_the_shape_of_a_result():
    assert mx.stream(lambda part: part.sum(axis=1), nd.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    "arrays, options, error, text",
    [
        ((), {}, ValueError, "at least one array"),
        (([1, 2],), {}, TypeError, "NDArrays or NumPy arrays, got list"),
        ((nd.ones((2, 2)), nd.ones((3, 2))), {}, mx.MXNetError, "equally long"),
        ((nd.ones((2, 2)),), {"rows": 0}, ValueError, "rows must be a number above 0, got 0"),
        (
            (nd.ones((2, 2)),),
            {"out": nd.ones((2, 3))},
            mx.MXNetError,
            r"out must have shape \(2, 2\)",
        ),
        ((nd.ones((2, 2)),), {"ctx": mx.gpu(99)}, mx.MXNetError, r"gpu\(99\)"),
    ],
)
def test_stream_refuses(arrays, options, error, text):
    with pytest.raises(error, match=text):
        mx.stream(lambda *parts: parts[0], *arrays, **options)


@pytest.mark.parametrize(
    "function, error, text",
    [
        (lambda part: part.sum(), mx.MXNetError, "a row for each of the chunk's 2"),
        (lambda part: part.asnumpy(), TypeError, "function must return NDArrays, got ndarray"),
        (lambda part: nd.concat(part, dim=7), mx.MXNetError, "concat|Concat"),
    ],
)
def test_a_function_that_does_not_fit_is_told(function, error, text):
    with pytest.raises(error, match=text):
        mx.stream(function, nd.ones((4, 2)), rows=2)

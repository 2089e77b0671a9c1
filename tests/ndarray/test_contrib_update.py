"""nd.contrib's updates by AdamW and LAMB give what MXNet 1.9.1 gives."""

import numpy as np
import pytest
from plait import nd

# what the real MXNet printed for the calls below, in their order
EXPECTED = [
    [[1.61248, 0.40669, 0.98051], [0.96712, -0.04284, -0.14176], [0.41144, 0.14477, 1.45306]],
    [[0.72873, 0.19418, 0.68456], [0.2901, -0.74869, -2.30282], [0.65297, 0.86361, 0.74143]],
    [
        [1.22363, 1.10449, -0.27539],
        [0.10203, 0.64699, -0.50506],
        [1.97896, 0.35697, 0.16483],
        [1.22376, 1.10492, -0.27537],
    ],
    [
        [-0.17316, -0.92201, -1.53047],
        [-1.54442, 1.99678],
        [-0.21695, -0.82782, 0.28557],
        [-0.42085, -1.14326],
        [0.02822, 0.42795, 0.06684],
        [0.30232, 0.63434],
    ],
    [
        [-0.03943, -0.81151, -1.57664],
        [-1.07311, 2.17779],
        [-0.24622, -0.78885, 0.13174],
        [-0.30102, -1.19033],
        [0.02845, 0.42772, 0.06835],
        [0.30262, 0.63631],
    ],
]


def arrays(rng):
    def normal(n=3, dtype="float32"):
        return nd.array(rng.randn(n).astype(dtype), dtype=dtype)

    def positive(n=3):
        return nd.array(np.abs(rng.randn(n)).astype("float32"))

    return normal, positive


def test_updates_are_those_of_mxnet():
    normal, positive = arrays(np.random.RandomState(0))
    results = []
    w, g, m, v = normal(), normal(), normal(), positive()
    nd.contrib.adamw_update(w, g, m, v, 0.5, lr=0.1, eta=0.9, wd=0.01, out=w)
    results.append([w, m, v])
    w, g, m, v = normal(), normal(), normal(), positive()
    nd.contrib.adamw_update(w, g, m, v, nd.array([0.25]), lr=0.1, eta=0.9, clip_gradient=0.2, out=w)
    results.append([w, m, v])
    half = normal(dtype="float16"), normal(dtype="float16")
    m, v, w32 = normal(), positive(), normal()
    nd.contrib.mp_adamw_update(*half, m, v, w32, 2.0, lr=0.1, eta=0.9, out=half[0])
    results.append([half[0], m, v, w32])
    W, G, M = ([normal(), normal(2)] for _ in range(3))
    V = [positive(), positive(2)]
    nd.contrib.multi_adamw_update(W, G, M, V, 0.5, [0.1, 0.2], [0.0, 0.1], [1.0, 0.5], out=W)
    results.append([a.copy() for a in (*W, *M, *V)])
    nd.contrib.multi_lamb_update(W, G, M, V, [1, 3], [0.1, 0.2], [0.0, 0.1], out=W)
    results.append([*W, *M, *V])
    for found, expected in zip(results, EXPECTED, strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.asnumpy().astype("float64"), b, atol=2e-5)


def test_a_scale_that_is_not_finite_skips_the_update():
    normal, positive = arrays(np.random.RandomState(0))
    w, g, m, v = normal(), normal(), normal(), positive()
    before = w.asnumpy()
    nd.contrib.adamw_update(w, g, m, v, float("inf"), lr=0.1, eta=0.9, out=w)
    assert (w.asnumpy() == before).all()


def test_lists_of_different_lengths_are_refused():
    normal, positive = arrays(np.random.RandomState(0))
    with pytest.raises(ValueError):
        nd.contrib.multi_lamb_update(
            [normal()], [normal(), normal()], [normal()], [positive()], [1], [0.1], [0.0]
        )

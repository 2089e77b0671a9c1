"""Operators whose result's shape depends on values or on `out`, and unique classes by rank."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd


def test_boolean_mask_and_its_gradient():
    x = nd.arange(12).reshape((4, 3))
    x.attach_grad()
    with autograd.record():
        y = nd.contrib.boolean_mask(x, nd.array([0, 1, 0, 2.5]))
        total = (y * y).sum()
    total.backward()
    assert y.asnumpy().tolist() == [[3, 4, 5], [9, 10, 11]]
    assert x.grad.asnumpy().tolist() == [[0, 0, 0], [6, 8, 10], [0, 0, 0], [18, 20, 22]]
    assert nd.contrib.boolean_mask(x, nd.zeros(4)).shape == (0, 3)
    with pytest.raises(mx.MXNetError, match=r"index must have shape \(data.shape\[0\],\)"):
        nd.contrib.boolean_mask(x, nd.ones(3))
    with pytest.raises(mx.MXNetError, match="axis must be 0, got 1"):
        nd.contrib.boolean_mask(x, nd.ones(4), axis=1)


def test_set_value_fills_its_output():
    x = nd.zeros((2, 3))
    assert nd._internal._set_value(3, out=x) is x and (x.asnumpy() == 3).all()
    with pytest.raises(mx.MXNetError, match="needs the array to fill"):
        nd._internal._set_value(3)


def test_zipfian_classes_differ_and_small_ones_lead():
    found, tries = nd._internal._sample_unique_zipfian(1000, shape=(200, 20))
    found, tries = found.asnumpy(), tries.asnumpy()
    assert all(len(set(row)) == 20 for row in found) and (tries >= 20).all()
    assert 0 <= found.min() and found.max() < 1000
    share = (found < 10).sum() / found.size  # of single draws it would be log(11) / log(1001)
    assert 0.2 < share < np.log(11) / np.log(1001) + 0.05
    all_of_them, _ = nd._internal._sample_unique_zipfian(3, shape=(1, 3))
    assert sorted(all_of_them.asnumpy()[0]) == [0, 1, 2]


def test_rand_zipfian_gives_expected_counts():
    classes, true, counts = nd.contrib.rand_zipfian(nd.array([3]), 4, 5)
    assert classes.shape == counts.shape == (4,) and classes.dtype == np.int64
    assert true.asscalar() == pytest.approx(0.498155148939376)
    k = classes.asnumpy()
    np.testing.assert_allclose(counts.asnumpy(), np.log((k + 2) / (k + 1)) / np.log(6) * 4)

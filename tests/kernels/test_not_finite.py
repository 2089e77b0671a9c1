"""What is not finite stays where it belongs: one NaN or Inf reaches the outputs that read it."""

import numpy as np
import pytest
from plait import autograd, nd
from plait.gluon import nn
from plait.kernels.plan import of_programs
from plait.kernels.record import REGISTRY

SIDE, CHANNELS, FILTERS = 16, 16, 16


@pytest.fixture
def exact(monkeypatch):
    """The debugging mode; plans made before are not of it."""
    names = ("Convolution", "_conv", "_conv_grad_data", "_conv_grad_weight")
    monkeypatch.setenv("PLAIT_TIER", "0")
    for name in names:
        REGISTRY[name].plans.clear()
    of_programs.clear()
    yield
    for name in names:
        REGISTRY[name].plans.clear()
    of_programs.clear()


def convolved(x, w):
    """A 3 x 3 convolution with padding 1 in float64; taps that are not there are skipped."""
    y = np.zeros((x.shape[0], w.shape[0], *x.shape[2:]))
    for i in range(3):
        for j in range(3):
            rows, columns = (
                slice(max(0, 1 - i), SIDE + min(0, 1 - i)),
                slice(max(0, 1 - j), SIDE + min(0, 1 - j)),
            )
            seen = x[
                :, :, max(0, i - 1) : SIDE + min(0, i - 1), max(0, j - 1) : SIDE + min(0, j - 1)
            ]
            y[:, :, rows, columns] += np.einsum("nchw,fc->nfhw", seen, w[:, :, i, j])
    return y


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_pixel_of_a_convolution_in_the_debugging_mode(exact, value, hybrid):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, CHANNELS, SIDE, SIDE)).astype("float32")
    x[0, 3, 6, 7] = value
    net = nn.Conv2D(FILTERS, 3, padding=1, in_channels=CHANNELS, use_bias=False)
    net.initialize()
    if hybrid:
        net.hybridize()
    for _ in range(3):
        y = net(nd.array(x)).asnumpy()
    with np.errstate(invalid="ignore"):
        want = convolved(x.astype("float64"), net.weight.data().asnumpy().astype("float64"))
    assert (~np.isfinite(want)).sum() == 9 * FILTERS
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", [np.nan, np.inf, -np.inf, 1e30, -5, 0, 100])
@pytest.mark.parametrize("which", [2, 3])
def test_lengths_that_are_none(which, length):
    """CTC with lengths of one example that may be anything: the other is as ever."""
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((5, 2, 4)), [[1, 2, 0], [1, 1, 3]], [5, 5], [2, 3]]
    losses = []
    for value in (given[which][0], length):
        arrays = [nd.array(np.array(a, "float32")) for a in given]
        arrays[which][0] = value
        arrays[0].attach_grad()
        with autograd.record():
            loss = nd.CTCLoss(*arrays, use_data_lengths=True, use_label_lengths=True)
        loss.backward()
        losses.append((loss.asnumpy()[1], *arrays[0].grad.asnumpy()[:, 1].ravel()))
    np.testing.assert_array_equal(*losses)

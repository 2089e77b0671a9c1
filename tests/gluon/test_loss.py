"""Losses and their gradients, eager and hybridized, as MXNet 1.9.1 computes them (losses.npz)."""

import pathlib

import numpy as np
import pytest
from plait import autograd, nd
from plait.gluon import loss as L

EXPECTED = np.load(pathlib.Path(__file__).parents[1] / "fixtures" / "losses.npz")
CASES = {
    "l2": (lambda: L.L2Loss(2.0), "p q sw"),
    "l1": (lambda: L.L1Loss(weight=0.5), "p q sw"),
    "l1_batch1": (lambda: L.L1Loss(batch_axis=1), "p q"),
    "sce": (lambda: L.SoftmaxCELoss(), "p lab"),
    "sce_weight": (lambda: L.SoftmaxCELoss(weight=2.0), "p lab sw"),
    "sce_dense": (lambda: L.SoftmaxCELoss(sparse_label=False), "p dist"),
    "sce_logits": (lambda: L.SoftmaxCELoss(from_logits=True), "logdist lab"),
    "bce": (lambda: L.SigmoidBCELoss(), "p b"),
    "bce_sigmoid": (lambda: L.SigmoidBCELoss(True), "prob b"),
    "bce_pos": (lambda: L.SigmoidBCELoss(), "p b sw pw"),
    "huber": (lambda: L.HuberLoss(0.5), "p q"),
    "kl": (lambda: L.KLDivLoss(), "logdist dist2"),
    "kl_logits": (lambda: L.KLDivLoss(False), "p dist"),
    "hinge": (lambda: L.HingeLoss(), "p pm"),
    "squared_hinge": (lambda: L.SquaredHingeLoss(2), "p pm sw"),
    "logistic": (lambda: L.LogisticLoss(), "p pm"),
    "logistic_binary": (lambda: L.LogisticLoss(label_format="binary"), "p b"),
    "triplet": (lambda: L.TripletLoss(), "p q r"),
    "poisson": (lambda: L.PoissonNLLLoss(), "p absq"),
    "cosine": (lambda: L.CosineEmbeddingLoss(margin=0.1), "p q pm1"),
    "ctc": (lambda: L.CTCLoss(), "ntc nt"),
    "ctc_lengths": (lambda: L.CTCLoss("TNC", "TN", weight=2.0), "tnc tn plen llen"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hybrid", [False, True])
def test_loss_and_gradient_equal_those_of_mxnet(name, hybrid):
    make, inputs = CASES[name]
    block = make()
    block.hybridize(hybrid)
    arrays = [nd.array(EXPECTED[f"in_{i}"]) for i in inputs.split()]
    arrays[0].attach_grad()
    with autograd.record():
        y = block(*arrays)
    y.backward()
    assert y.shape == EXPECTED[name].shape
    np.testing.assert_allclose(y.asnumpy(), EXPECTED[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        arrays[0].grad.asnumpy(), EXPECTED[name + "_grad"], rtol=1e-4, atol=1e-5
    )


def test_sdml_prefers_matching_pairs():
    rs = np.random.RandomState(0)
    a, b = rs.randn(4, 5), rs.randn(4, 5)
    block = L.SDMLLoss()
    assert (
        block(nd.array(a), nd.array(a)).sum().asscalar()
        < block(nd.array(a), nd.array(b)).sum().asscalar()
    )


@pytest.mark.parametrize("hybrid", [False, True])
def test_losses_of_users_weight_as_ours(hybrid):
    class Power(L.Loss):
        def hybrid_forward(self, F, pred, label, sample_weight=None):
            loss = L._apply_weighting(F, F.abs(pred - label) ** 1.5, self._weight, sample_weight)
            return F.mean(loss, axis=self._batch_axis, exclude=True)

    loss = Power(2.0, 0)
    loss.hybridize(hybrid)
    out = loss(nd.array([[1, 2], [3, 5]]), nd.array([[0, 0], [3, 1]]), nd.array([[0.5], [2]]))
    np.testing.assert_allclose(out.asnumpy(), [1.9142135, 16.0], rtol=1e-6)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="signed or binary"):
        L.LogisticLoss(label_format="x")
    with pytest.raises(ValueError, match="'NTC' and 'TNC'"):
        L.CTCLoss("CTN")
    with pytest.raises(TypeError, match="weight must be a number"):
        L.L2Loss("2")(nd.ones((1,)), nd.ones((1,)))


def test_repr():
    assert repr(L.SoftmaxCELoss()) == "SoftmaxCrossEntropyLoss(batch_axis=0, w=None)"


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_make_loss_of_a_single_number(normalization):
    x = nd.array(3.0)
    x.attach_grad()
    with autograd.record():
        y = nd.MakeLoss(x, normalization=normalization, grad_scale=2.0)
    y.backward()
    assert x.grad.shape == () and x.grad.asscalar() == 2

"""What the comparison with MXNet (tests/oracle) found; expected values are MXNet's."""

import numpy as np
import plait as mx
import pytest
from plait import nd, sym


@pytest.mark.parametrize(("act", "slope"), [("elu", 1.0), ("selu", 1.0507009)])
def test_gradient_of_elu_and_selu_at_infinity(act, slope):
    x = nd.array([np.inf, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = nd.LeakyReLU(x, act_type=act)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), [slope, slope], rtol=1e-6)


def test_the_fraction_of_a_length_does_not_count():
    x = nd.array([[[1.0]], [[2.0]]])
    for lengths in (nd.array([1.5]), nd.array([1.5], dtype="float64")):
        y = nd.SequenceMask(x, lengths, use_sequence_length=True)
        assert y.asnumpy().ravel().tolist() == [1, 0]


def test_labels_are_not_smoothed_with_multi_output():
    x = nd.array([[0.5, -1.0, 2.0]])
    x.attach_grad()
    with mx.autograd.record():
        y = nd.SoftmaxOutput(x, nd.array([1]), multi_output=True, smooth_alpha=0.1)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), y.asnumpy() - [[0, 1, 0]], rtol=1e-6)


def test_full_pooling_v1_has_a_window_beyond_the_padding():
    y = nd.Pooling_v1(
        nd.ones((1, 1, 6, 5)), kernel=(3, 2), stride=(8, 3), pad=(1, 1), pooling_convention="full"
    )
    assert y.shape == (1, 1, 2, 3)


def test_a_given_auxiliary_starts_as_one_made_here():
    mean = sym.Variable("mean", init=mx.init.One())
    s = sym.BatchNorm(*map(sym.Variable, "xgb"), mean, sym.Variable("var"))
    assert s.attr_dict()["var"]["__init__"] == '["one", {}]'
    assert s.attr_dict()["mean"]["__init__"] == '["one", {}]'


def test_shapes_do_not_wait_for_dtypes():
    s = sym.softmax(sym.Variable("x"), sym.Variable("n"), use_length=True)
    assert s.infer_shape(x=(2, 3), n=(2,)) == ([(2, 3), (2,)], [(2, 3)], [])


def test_names_of_outputs():
    x = sym.Variable("x")
    assert sym.split(x, num_outputs=1, name="f").list_outputs() == ["f_output0"]
    assert sym.topk(x, k=2, name="f").list_outputs() == ["f_output"]
    assert sym.topk(x, k=2, ret_typ="value", name="f").list_outputs() == ["f_output0"]
    assert sym.linalg.slogdet(x, name="f").list_outputs() == ["f_output0", "f_output1"]


def test_sparse_embedding_has_row_sparse_gradients():
    w = nd.array(np.arange(10).reshape(5, 2)).tostype("row_sparse")
    w.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        y = nd.contrib.SparseEmbedding(nd.array([1, 2, 1]), w, input_dim=5, output_dim=2)
    y.backward()
    assert w.grad.stype == "row_sparse" and w.grad.indices.asnumpy().tolist() == [1, 2]
    assert w.grad.data.asnumpy().tolist() == [[2, 2], [1, 1]]


def test_a_size_needs_no_scale_in_modes_without_one():
    y = nd.contrib.BilinearResize2D(nd.ones((1, 1, 4, 5)), mode="to_odd_down", scale_width=1)
    assert y.shape == (1, 1, 3, 5)

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


def test_the_norm_of_lamb_is_that_of_the_narrow_weight():
    w32 = np.full((4, 5), 1.0004, "float32")  # 1.0 as float16
    one = np.ones_like(w32)
    arrays = [
        nd.array(a, dtype=a.dtype)
        for a in (w32.astype("float16"), one.astype("float16"), 0 * one, 0 * one, w32)
    ]
    nd._internal._multi_mp_lamb_update(
        *arrays, learning_rates=(1.0,), wds=(0.0,), step_count=(1,), num_tensors=1, out=arrays[0]
    )
    np.testing.assert_allclose(arrays[4].asnumpy(), w32 - 1.0, atol=1e-5)


def test_an_even_window_of_lrn_is_one_smaller():
    x = nd.arange(1, 7).reshape((1, 6, 1, 1))
    y = nd.LRN(x, nsize=4, alpha=1, beta=1, knorm=0)
    expected = [0.8, 0.5714286, 0.4137931, 0.32, 0.25974026, 0.3934426]
    np.testing.assert_allclose(y.asnumpy().ravel(), expected, rtol=1e-6)


def test_uneven_sections_of_split_v2():
    for n, sections, sizes in [(7, 3, [3, 2, 2]), (5, 2, [3, 2]), (3, 5, [1, 1, 1, 0, 0])]:
        parts = nd._split_v2(nd.arange(n), sections=sections, indices=(), axis=0)
        assert [p.shape[0] for p in parts] == sizes
        assert np.concatenate([p.asnumpy() for p in parts]).tolist() == list(range(n))
    x, w = nd.arange(20).reshape((2, 10)), nd.ones((4, 2))
    left, middle, right = sym.Variable("x").split_v2(3, axis=1)
    y = sym.dot(left, sym.Variable("w")) + sym.sum(middle * right)
    expected = x[:, :4].asnumpy() @ w.asnumpy() + (x[:, 4:7] * x[:, 7:]).asnumpy().sum()
    np.testing.assert_allclose(y.eval(x=x, w=w)[0].asnumpy(), expected)


def test_an_inferred_size_of_0_is_known():
    x = sym.Variable("x")
    assert sym.diag(x, k=1).infer_shape(x=(3, 1)) == ([(3, 1)], [(0,)], [])
    assert (sym.one_hot(x, depth=0) + 1).infer_shape(x=(2,)) == ([(2,)], [(2, 0)], [])
    assert sym.diag(x).infer_shape(x=(0, 3)) == (None, None, None)


def test_lengths_have_the_type_of_the_data():
    s = sym.SequenceMask(sym.Variable("x"), use_sequence_length=True, name="f")
    assert s.infer_type(x="float64")[0] == [np.float64, np.float64]
    assert s.infer_type(x="float64", f_sequence_length="float32")[0] == [np.float64, np.float32]


def test_updates_of_many_weights_name_what_is_missing():
    s = sym.preloaded_multi_mp_sgd_mom_update(sym.Variable("x"), num_weights=2, name="f")
    assert s.list_arguments() == ["x", "f_grad_0", "f_weight_1", "f_grad_1", "f_lrs", "f_wds"]
    assert s.list_auxiliary_states() == ["f_mom_0", "f_weight32_0", "f_mom_1", "f_weight32_1"]


def test_whole_images_are_normalised_in_float():
    x = nd.array([[[1, 3]], [[0, 5]], [[2, 7]]], dtype="int32")
    y = nd.image.normalize(x, mean=(0.5, 0.0, 1.0), std=(0.5, 1.0, 2.0))
    assert y.dtype == np.int32 and y.asnumpy().tolist() == [[[1, 5]], [[0, 5]], [[0, 3]]]


def test_mixed_precision_leaves_other_types_alone():
    names = lambda ys: [np.dtype(y.dtype).name for y in ys]
    one = lambda dtype: nd.ones((2,), dtype=dtype)
    assert names([nd.amp_cast(one("float64"), dtype="float16")]) == ["float64"]
    assert names(nd.amp_multicast(one("int32"), one("int8"), num_outputs=2)) == ["int32", "int8"]
    mixed = nd.amp_multicast(one("float16"), one("float64"), one("float32"), num_outputs=3)
    assert names(mixed) == ["float32", "float64", "float32"]


def test_one_list_of_axes_alone_does_not_count():
    assert nd.broadcast_like(nd.ones((1, 3)), nd.ones((2, 3)), lhs_axes=(0,)).shape == (2, 3)


def test_gradients_with_nothing_to_move():
    """Of MAE at equality, -1 as in MXNet; of prelu, no 0 * inf."""
    x, gamma = nd.array([[1.0, 2.0, -3.0]]), nd.array([-np.inf, 2.0, 0.5])
    for a in (x, gamma):
        a.attach_grad()
    with mx.autograd.record():
        y = nd.MAERegressionOutput(x, nd.array([[1.0, 3.0, -5.0]]))
    y.backward()
    np.testing.assert_allclose(3 * x.grad.asnumpy(), [[-1, -1, 1]], rtol=1e-6)
    with mx.autograd.record():
        y = nd.LeakyReLU(x, gamma, act_type="prelu")
    y.backward()
    assert x.grad.asnumpy().tolist() == [[1, 1, 0.5]]
    assert gamma.grad.asnumpy().tolist() == [0, 0, -3]


@pytest.mark.parametrize(
    "n, scale, mode, size",
    [
        (10, 0.7, "size", 7),
        (10, 0.3, "size", 3),
        (20, 0.7, "size", 14),
        (21, 0.7, "odd_scale", 15),
        (7, 1.9, "size", 13),
    ],
)
def test_scaled_sizes_are_products_in_float32(n, scale, mode, size):
    x = nd.ones((1, 1, n, n))
    y = nd.contrib.BilinearResize2D(x, scale_height=scale, scale_width=scale, mode=mode)
    assert y.shape == (1, 1, size, size)


def test_a_number_stands_for_a_tuple_of_floats():
    x = nd.ones((1, 3, 2, 2))
    for f in (
        nd.contrib.MultiBoxPrior,
        lambda x, **k: sym.contrib.MultiBoxPrior(sym.var("x"), **k).eval(x=x)[0],
    ):
        assert f(x, sizes=0.5, ratios=1).shape == (1, 4, 4)
    y = nd.image.normalize(nd.ones((3, 2, 2)), mean=0.5, std=np.float64(2))
    np.testing.assert_array_equal(y.asnumpy(), np.full((3, 2, 2), 0.25))
    y = nd.image.normalize(nd.ones((3, 1, 1)), mean=np.array([0.5, 0, 1]), std=(1, 2, 4))
    np.testing.assert_array_equal(y.asnumpy().ravel(), [0.5, 0.5, 0])


def test_shapes_are_numbers_and_arrays_too():
    for make in (nd.empty, nd.zeros, nd.ones, lambda s: nd.full(s, 2), nd.random.uniform):
        call = make if make is not nd.random.uniform else lambda s: make(shape=s)
        for shape, want in (
            (np.array([2, 3]), (2, 3)),
            (np.int64(3), (3,)),
            ([2, np.int32(1)], (2, 1)),
            (np.array([4]), (4,)),
        ):
            assert call(shape).shape == want
    assert nd.ones((6,)).reshape(np.array([2, 3])).shape == (2, 3)
    with pytest.raises(TypeError, match="shape must be an int or a tuple of ints"):
        nd.zeros(np.array([2.5, 3]))


def test_simple_bind_ignores_keywords_that_name_no_variable():
    y = sym.var("a") * 2
    executor = y.simple_bind(mx.cpu(), a=(2,), force_rebind=True, axis=-1, mode="clip")
    assert executor.arg_dict["a"].shape == (2,)
    with pytest.raises(mx.MXNetError, match="cannot be inferred: a"):
        y.simple_bind(mx.cpu(), b=(2,))


def test_prelu_takes_a_slope_for_each_row_and_channel():
    slopes = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]], "float32")
    for shape in ((2, 3, 2), (3, 3, 3), (2, 3)):
        n = slopes[: shape[0]]
        want = np.broadcast_to(n.reshape(n.shape + (1,) * (len(shape) - 2)), shape)
        y = nd.LeakyReLU(-nd.ones(shape), nd.array(n), act_type="prelu")
        np.testing.assert_array_equal(y.asnumpy(), -want)
    with pytest.raises(ValueError, match="gamma must have 1 element, one for each channel"):
        nd.LeakyReLU(nd.ones((2, 3, 4)), nd.ones((3, 4)), act_type="prelu")


def test_a_condition_of_one_axis_chooses_rows():
    x, y = nd.array([[2, 3], [4, 5], [6, 7]]), nd.zeros((3, 2))
    assert nd.where(nd.array([1, 0, 1]), x, y).asnumpy().tolist() == [[2, 3], [0, 0], [6, 7]]
    for where in (nd.where, lambda *a: sym.where(*map(sym.var, "cxy")).eval(**dict(zip("cxy", a)))):
        with pytest.raises(mx.MXNetError, match=r"must have x.shape\[0\] elements"):
            where(nd.array([1, 0]), x, y)


def test_row_ids_may_be_nested_as_the_arrays_are():
    store = mx.kv.create("local")
    store.init(["w"], [nd.ones((4, 2)).tostype("row_sparse")])
    outs = [nd.zeros((4, 2)).tostype("row_sparse") for _ in range(2)]
    store.row_sparse_pull(["w"], out=[outs], row_ids=[[nd.array([0, 1]), nd.array([3])]])
    assert [o.indices.asnumpy().tolist() for o in outs] == [[0, 1], [3]]


def _second(f, x):
    x = nd.array(x)
    x.attach_grad()
    with mx.autograd.record():
        [g] = mx.autograd.grad(f(x), [x], create_graph=True, retain_graph=True)
    g.backward()
    return g.asnumpy(), x.grad.asnumpy()


@pytest.mark.parametrize(
    "f, slope",
    [(nd.radians, np.pi / 180), (nd.identity, 1), (lambda x: 3 * x - 1, 3), (nd.floor, 0)],
)
def test_a_constant_gradient_has_gradient_zero(f, slope):
    first, second = _second(f, [1.5, -2])
    np.testing.assert_allclose(first, [slope, slope], rtol=1e-6)
    assert second.tolist() == [0, 0]


def test_second_derivatives_of_inverse_hyperbolic_functions():
    """Where MXNet's are wrong: the sign of arcsinh's."""
    x = np.array([1, -2, 0.3, 30])
    want = -x / (1 + x * x) ** 1.5
    np.testing.assert_allclose(_second(nd.arcsinh, x)[1], want, rtol=1e-5)


def test_every_sampler_of_the_shape_of_an_array_has_a_symbol():
    names = [n for n in dir(nd.random) if n.endswith("_like")]
    assert len(names) == 7
    for name in names:
        given = {"k": 3, "p": 0.4} if name == "negative_binomial_like" else {}
        y = getattr(sym.random, name)(sym.var("x"), **given)
        assert y.list_arguments() == ["x"] and y.infer_shape(x=(2, 3))[1] == [(2, 3)]


def test_a_row_sparse_parameter_has_one_trainer():
    for stype in ("default", "row_sparse"):
        p = mx.gluon.Parameter("x", shape=(10,), stype=stype)
        p.initialize()
        first = mx.gluon.Trainer([p], "sgd")
        if stype == "default":
            assert mx.gluon.Trainer([p], "sgd") is p._trainer
        else:
            with pytest.raises(RuntimeError, match="it was already set. More than one trainers"):
                mx.gluon.Trainer([p], "sgd")
            assert p._trainer is first


def test_a_trainer_that_cannot_be_made_leaves_no_trace():
    p = mx.gluon.Parameter("x", shape=(10,))
    p.initialize()
    for arguments in (("adan",), ("sgd", {"no_such": 1}), (mx.optimizer.SGD(), {"wd": 1})):
        with pytest.raises((mx.MXNetError, TypeError)):
            mx.gluon.Trainer([p], *arguments)
        assert p._trainer is None

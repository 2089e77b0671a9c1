"""Parameters: initialization, devices, files, errors."""

import gc
import weakref

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.gluon.parameter import ParameterError
from plait.ndarray import serialization


def test_deferred_error_names_layer_dimension_and_fix():
    layer = nn.Dense(4, prefix="fc_")
    layer.initialize()
    with pytest.raises(
        gluon.DeferredInitializationError,
        match=r"(?s)fc_weight.*dimension 1.*Dense \"fc\".*in_units=",
    ):
        layer.weight.data()


def test_uninitialized_error_names_the_fix():
    with pytest.raises(mx.MXNetError, match=r"(?s)has not been initialized.*fix: net.initialize"):
        nn.Dense(4, in_units=2)(nd.ones((1, 2)))


def test_several_devices_share_a_value():
    p = gluon.Parameter("w", shape=(2, 3))
    p.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert p.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    a, b = p.list_data()
    assert a.context == mx.cpu(0) and b.context == mx.cpu(1)
    np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    with pytest.raises(mx.MXNetError, match=r"not initialized on context cpu\(2\)"):
        p.data(mx.cpu(2))
    p.reset_ctx(mx.cpu(2))
    assert p.data().context == mx.cpu(2)


def ones_net():
    net = nn.Dense(2, in_units=3, use_bias=False)
    net.initialize(mx.init.One())
    net.hybridize()
    return net


def test_a_graph_reads_the_arrays_that_its_parameters_have_now():
    net, x = ones_net(), nd.ones((1, 3))
    assert net(x).asnumpy().tolist() == [[3, 3]]
    net.initialize(mx.init.Constant(2), force_reinit=True)
    assert net(x).asnumpy().tolist() == [[6, 6]]
    net.weight.reset_ctx(mx.cpu(1))
    with autograd.record():
        y = net(x.as_in_context(mx.cpu(1)))
    y.backward()
    assert y.asnumpy().tolist() == [[6, 6]]
    assert net.weight.grad().asnumpy().tolist() == [[1, 1, 1]] * 2
    net.weight._data = None
    with pytest.raises(mx.MXNetError, match="has not been initialized"):
        net(x.as_in_context(mx.cpu(1)))


def test_a_graph_keeps_no_array_that_its_parameter_lost():
    net, x = ones_net(), nd.ones((1, 3))
    net(x).wait_to_read()
    before = weakref.ref(net.weight.data())
    net.initialize(force_reinit=True)
    gc.collect()
    assert before() is None


def test_set_data_before_shapes_are_known_is_kept():
    layer = nn.Dense(2)
    layer.initialize()
    layer.weight.set_data(nd.array([[1, 2, 3], [4, 5, 6]]))
    layer(nd.ones((1, 3)))
    np.testing.assert_array_equal(layer.weight.data().asnumpy(), [[1, 2, 3], [4, 5, 6]])


def test_set_data_refuses_another_shape_and_changes_nothing():
    p = gluon.Parameter("w", shape=(2, 2), init="ones")
    p.initialize()
    with pytest.raises(ParameterError, match=r"\(3, 2\) is incompatible with given shape \(2, 2\)"):
        p.set_data(nd.zeros((3, 2)))
    assert (p.data().asnumpy() == 1).all()


def test_grad_req_null_has_no_gradient():
    p = gluon.Parameter("w", shape=(2,), grad_req="null")
    p.initialize(init="zeros")
    with pytest.raises(mx.MXNetError, match="grad_req='null'"):
        p.grad()
    p.grad_req = "write"
    assert p.grad().shape == (2,)


def test_dict_reconciles_shapes_and_refuses_conflicts():
    d = gluon.ParameterDict("a_")
    p = d.get("w", shape=(0, 3))
    assert d.get("w", shape=(2, 3)) is p and p.shape == (2, 3)
    with pytest.raises(AssertionError, match="desired '\\(5, 3\\)' vs stored '\\(2, 3\\)'"):
        d.get("w", shape=(5, 3))
    other = gluon.ParameterDict("a_")
    other.get("w", shape=(2, 3))
    with pytest.raises(ParameterError, match="same name 'a_w'"):
        d.update(other)


def test_constant_is_not_trained():
    c = gluon.Constant("c", [[1, 2]])
    c.initialize()
    assert c.grad_req == "null" and c.data().asnumpy().tolist() == [[1, 2]]
    with pytest.warns(UserWarning, match="does not support grad_req"):
        c.grad_req = "write"


def test_cast_changes_data_and_gradient():
    layer = nn.Dense(2, in_units=3)
    layer.initialize()
    layer.cast("float64")
    assert layer.weight.data().dtype == np.float64 and layer.weight.grad().dtype == np.float64
    assert layer(nd.ones((1, 3), dtype="float64")).dtype == np.float64


def net(prefix="m_"):
    block = nn.HybridSequential(prefix=prefix)
    with block.name_scope():
        block.add(nn.Dense(4, in_units=3), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    return block


@pytest.mark.parametrize("style", ["structural", "full", "stripped", "exported", "deduplicated"])
def test_files_of_every_naming_style_load(tmp_path, style):
    a, file = net(), str(tmp_path / "w.params")
    a.initialize(mx_init())
    x = nd.array(np.arange(6).reshape(2, 3))
    y = a(x).asnumpy()
    if style in ("structural", "deduplicated"):
        a.save_parameters(file, deduplicate=style == "deduplicated")
        assert list(serialization.load(file))[:2] == ["0.weight", "0.bias"]
    elif style == "exported":
        a.hybridize()
        a(x)
        a.export(str(tmp_path / "w"))
        file = str(tmp_path / "w-0000.params")
        assert "aux:m_batchnorm0_running_mean" in serialization.load(file)
    else:
        a.collect_params().save(file, strip_prefix="m_" if style == "stripped" else "")
    b = net()
    b.load_parameters(file)
    np.testing.assert_array_equal(b(x).asnumpy(), y)


def mx_init():
    from plait.training import initializer

    return initializer.Normal(1.0)


def test_a_mismatch_prints_a_diff_with_the_nearest_names(tmp_path):
    file = str(tmp_path / "w.params")
    serialization.save(file, {"0.weigth": nd.ones((4, 3)), "0.bias": nd.ones((4,))})
    layer = nn.HybridSequential()
    layer.add(nn.Dense(4, in_units=3))
    with pytest.raises(
        ParameterError,
        match=r"(?s)- 0.weight.*nearest in the file: 0.weigth.*\+ 0.weigth.*allow_missing",
    ):
        layer.load_parameters(file)
    layer.load_parameters(file, allow_missing=True, ignore_extra=True)


def test_shape_and_dtype_of_a_file_are_checked(tmp_path):
    file = str(tmp_path / "w.params")
    serialization.save(
        file, {"weight": nd.ones((4, 3), dtype="float64"), "bias": nd.ones((4,), dtype="float64")}
    )
    with pytest.raises(
        ParameterError, match=r"shape incompatible expected \(5, 3\) vs saved \(4, 3\)"
    ):
        nn.Dense(5, in_units=3).load_parameters(file)
    with pytest.raises(
        ParameterError, match="dtype incompatible expected float32 vs saved float64"
    ):
        nn.Dense(4, in_units=3).load_parameters(file)
    layer = nn.Dense(4, in_units=3)
    layer.load_parameters(file, cast_dtype=True)
    assert layer.weight.data().dtype == np.float32


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(mx.MXNetError, match="nonexistent"):
        net().load_parameters(str(tmp_path / "nonexistent"))
    (tmp_path / "text").write_text("hello, this is no parameter file")
    with pytest.raises(mx.MXNetError, match="Invalid NDArray file format"):
        net().load_parameters(str(tmp_path / "text"))


def test_reset_ctx_before_initialize_is_a_value_error():  # which gluoncv catches
    with pytest.raises(ValueError, match="has not been initialized"):
        mx.gluon.Parameter("w", shape=(2,)).reset_ctx(mx.cpu())


def test_a_constant_is_not_trained():
    net = mx.gluon.nn.Dense(1)
    constant = net.params.get_constant("anchors", [1.0, 2.0])
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 2))).sum()
    loss.backward()
    trainer.step(1)
    assert constant.grad_req == "null" and constant.data().asnumpy().tolist() == [1, 2]


def test_data_in_shared_memory_meets_parameters_on_the_cpu():  # gluoncv's loaders give such data
    shared = mx.nd.ones((2, 3), ctx=mx.Context("cpu_shared", 0))
    net = mx.gluon.nn.Dense(2, in_units=3, weight_initializer="ones")
    net.initialize()
    shared.attach_grad()
    with mx.autograd.record():
        y = net(shared) + mx.nd.ones((2, 2))
    y.backward()
    assert y.context == mx.cpu(0) and (y.asnumpy() == 4).all()
    assert (shared.grad.asnumpy() == 2).all() and (net.weight.grad().asnumpy() == 2).all()
    net.hybridize()
    assert (net(shared).asnumpy() == 3).all()
    with pytest.raises(mx.MXNetError, match="not initialized on context cpu\\(1\\)"):
        net.weight.data(mx.cpu(1))


def test_update_from_a_plain_dict():
    own, other = gluon.ParameterDict("a_"), gluon.Parameter("q", shape=(1,))
    own.update({"q": other})
    assert list(own) == ["q"] and own["q"] is other
    with pytest.raises(AssertionError, match="same name 'q'"):
        own.update({"q": gluon.Parameter("q", shape=(1,))})


def test_ctx_map_is_what_libraries_index():
    p = gluon.Parameter("q", shape=(1,))
    assert p._ctx_map is None
    p.initialize(ctx=[mx.cpu(2), mx.cpu(0)])
    assert p._ctx_map == [[], [1, None, 0]]  # MXNet's


@pytest.mark.parametrize("value", [[5], np.array([5.0]), nd.array([5]), [[5], [5]]])
def test_constants_broadcast(value):
    p = gluon.Parameter("p", shape=(2, 3), init=mx.init.Constant(value))
    p.initialize()
    assert (p.data().asnumpy() == 5).all()
    with pytest.raises(ValueError, match=r"shape \(2,\) does not broadcast .* \(2, 3\)"):
        gluon.Parameter("p", shape=(2, 3), init=mx.init.Constant([1, 2])).initialize()


def test_deferred_shapes_follow_from_the_whole_graph():
    layer = mx.gluon.rnn.LSTM(8, num_layers=1, prefix="lstm0_")
    layer.initialize()
    layer.infer_shape(mx.nd.ones((3, 5, 4)), layer.begin_state(5))
    assert {k: v.shape for k, v in layer.collect_params().items()} == {
        "lstm0_l0_i2h_weight": (32, 4),
        "lstm0_l0_h2h_weight": (32, 8),
        "lstm0_l0_i2h_bias": (32,),
        "lstm0_l0_h2h_bias": (32,),
    }

    class Twice(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(0, 4), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.dot(x, F.transpose(F.transpose(w)))

    for hybrid in (False, True):
        block = Twice()
        block.initialize(mx.init.One())
        block.hybridize(hybrid)
        assert block(mx.nd.ones((2, 3))).asnumpy().tolist() == [[3.0] * 4] * 2
        assert block.w.shape == (3, 4)

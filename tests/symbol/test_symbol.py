"""Symbol: composition, names, attributes, outputs, operators."""

import copy
import pickle
import threading

import numpy as np
import plait as mx
import pytest

sym = mx.sym


@pytest.fixture(autouse=True)
def names():
    with mx.name.NameManager():
        yield


def net():
    return sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")


def test_missing_inputs_become_variables():
    s = sym.BatchNorm(sym.var("x"), name="bn")
    assert s.list_arguments() == ["x", "bn_gamma", "bn_beta"]
    assert s.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert s.list_inputs() == ["x", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]
    assert sym.FullyConnected(sym.var("x"), num_hidden=2, no_bias=True).list_arguments() == [
        "x",
        "fullyconnected0_weight",
    ]
    assert sym.elemwise_add(sym.var("x")).list_arguments() == ["x", "elemwise_add0_rhs"]


def test_automatic_names_and_prefix():
    a = sym.var("a")
    assert [sym.relu(a).name, sym.relu(a).name, (a + a).name, (a + 1).name, (-a).name] == [
        "relu0",
        "relu1",
        "_plus0",
        "_plusscalar0",
        "_mulscalar0",
    ]
    with mx.name.Prefix("p_"):
        assert (
            sym.relu(a).name == "p_relu0"
            and sym.relu(a, name="x").name == "p_x"
            and sym.var("v").name == "v"
        )
    assert sym.relu(a).name == "relu2"


def test_names_are_counted_for_each_thread():
    sym.relu(sym.var("a"))
    found = []
    thread = threading.Thread(target=lambda: found.append(sym.relu(sym.var("a")).name))
    thread.start()
    thread.join()
    assert found == ["relu0"]


def test_outputs_by_index_name_and_slice():
    s = sym.split(sym.var("x"), num_outputs=3, name="s")
    assert s.list_outputs() == ["s_output0", "s_output1", "s_output2"] and len(s) == 3
    assert s[1].list_outputs() == s["s_output1"].list_outputs() == [s.list_outputs()[1]]
    assert s[1:].list_outputs() == ["s_output1", "s_output2"] and [o.name for o in s] == ["s"] * 3
    with pytest.raises(ValueError, match='Cannot find output that matches name "nope"'):
        s["nope"]
    with pytest.raises(IndexError):
        s[3]


def test_internals_children_and_group():
    s = net()
    assert s.get_internals().list_outputs() == ["data", "fc_weight", "fc_bias", "fc_output"]
    assert (
        s.get_children().list_outputs() == ["data", "fc_weight", "fc_bias"]
        and sym.var("a").get_children() is None
    )
    g = sym.Group([s, sym.var("v")])
    assert (
        g.list_outputs() == ["fc_output", "v"]
        and repr(g) == "<Symbol group [fc, v]>"
        and g.name is None
    )
    assert repr(s) == "<Symbol fc>"
    with pytest.raises(TypeError, match="Expected a list of symbols"):
        sym.Group([])


def test_call_replaces_variables():
    second = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc2")
    joined = second(data=net(), name="new")
    assert (
        joined.list_arguments() == ["data", "fc_weight", "fc_bias", "fc2_weight", "fc2_bias"]
        and joined.name == "new"
    )
    assert second.list_arguments()[0] == "data" and second.name == "fc2"
    with pytest.raises(ValueError, match="name foo not found, the variables are data"):
        second(foo=net())
    with pytest.raises(TypeError, match="not both"):
        second(net(), data=net())


def test_attributes():
    v = sym.var(
        "v",
        shape=(2, 0),
        lr_mult=2,
        wd_mult=0.5,
        dtype="float16",
        init="zeros",
        stype="default",
        __x__="1",
    )
    assert v.list_attr() == {
        "__shape__": "(2, 0)",
        "__lr_mult__": "2",
        "lr_mult": "2",
        "__wd_mult__": "0.5",
        "wd_mult": "0.5",
        "__dtype__": "2",
        "__init__": "zeros",
        "__storage_type__": "0",
        "__x__": "1",
    }
    with mx.AttrScope(ctx_group="a"), mx.AttrScope(__y__="2"):
        s = sym.FullyConnected(v, num_hidden=2, name="fc", attr={"lr_mult": "3"})
    assert (
        s.attr("ctx_group") == "a" and s.attr("__lr_mult__") == "3" and s.attr("num_hidden") == "2"
    )
    assert (
        s.attr_dict()["fc_weight"]["ctx_group"] == "a" and s.attr_dict()["fc_bias"]["__y__"] == "2"
    )
    assert sym.var("w").list_attr() == {} and s.attr("name") == "fc"
    s._set_attr(mood="good", force_mirroring="True")
    assert s.attr("mood") == "good" and s.attr("__force_mirroring__") == "True"
    for bad in (lambda: sym.var("v", foo="1"), lambda: mx.AttrScope(a=1), lambda: s._set_attr(a=1)):
        with pytest.raises(ValueError):
            bad()


def test_copies_and_pickles_are_independent():
    s = net()
    for twin in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert twin.tojson() == s.tojson()
        twin._set_attr(mood="good")
        assert s.attr("mood") is None


def test_operators_of_symbols_and_numbers():
    a, b = sym.var("a"), sym.var("b")
    x, y = np.array([1.0, 2.0, 3.0], "float32"), np.array([3.0, 2.0, 2.0], "float32")
    for f in (
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a % b,
        lambda a, b: a**b,
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: abs(-a) + 0 * b,
    ):
        for left, right, u, v in ((a, b, x, y), (a, 2, x, 2), (3, b, 3, y)):
            s = f(left, right)
            out = s.eval(**{k: mx.nd.array({"a": x, "b": y}[k]) for k in s.list_arguments()})[
                0
            ].asnumpy()
            np.testing.assert_allclose(out, np.broadcast_to(f(u, v), (3,)), rtol=1e-6)
    two = sym.Group(
        [sym.maximum(a, b), sym.minimum(2, b), sym.hypot(a, 2), sym.power(2, b), sym.pow(a, b)]
    )
    for out, want in zip(
        two.eval(a=mx.nd.array(x), b=mx.nd.array(y)),
        (np.maximum(x, y), np.minimum(2, y), np.hypot(x, 2), 2**y, x**y),
    ):
        np.testing.assert_allclose(out.asnumpy(), want, rtol=1e-6)
    assert sym.maximum(2, 3) == 3
    with pytest.raises(TypeError, match="not supported"):
        a + mx.nd.ones(2)


def test_addition_broadcasts():
    s = sym.var("a") + sym.var("b")
    assert s.eval(a=mx.nd.ones((2, 1)), b=mx.nd.ones((2, 3)))[0].shape == (2, 3)


@pytest.mark.parametrize(
    "call, rule",
    [
        (
            lambda: sym.FullyConnected(sym.var("x")),
            "FullyConnected: parameter 'num_hidden' is required",
        ),
        (
            lambda: sym.FullyConnected(sym.var("x"), num_hidden="z"),
            "num_hidden must be int, got 'z'",
        ),
        (lambda: sym.FullyConnected(sym.var("x"), num_hiden=3), "has no parameter 'num_hiden'"),
        (lambda: sym.relu(1), "relu: Argument data must be Symbol instances, but got int"),
        (
            lambda: sym.elemwise_add(sym.var("a"), sym.var("b"), sym.var("c")),
            "elemwise_add: takes 2 Symbols (lhs, rhs)",
        ),
        (
            lambda: sym.relu(sym.split(sym.var("x"), num_outputs=2)),
            "a single output is needed, got <Symbol split0> with 2",
        ),
    ],
)
def test_errors_stand_at_the_users_line(call, rule):
    with pytest.raises((mx.MXNetError, TypeError, ValueError)) as error:
        call()
    assert rule in str(error.value) and f"at: {__file__}:" in str(error.value)


def test_symbols_have_no_values():
    a = sym.var("a")
    for f in (
        lambda: bool(a),
        lambda: a.asnumpy(),
        lambda: a.wait_to_read(),
        lambda: a.shape,
        lambda: a.dtype,
    ):
        with pytest.raises(mx.MXNetError):
            f()
    assert not hasattr(a, "shape") and len(a) == 1


def test_creation_and_random():
    made = sym.Group(
        [
            sym.zeros((2, 3)),
            sym.ones((2,), dtype="int32"),
            sym.full((2,), 3),
            sym.arange(0, 6, 2),
            sym.eye(2),
            sym.linspace(0, 1, 3),
            sym.random.uniform(2, 3, shape=(4,)),
            sym.random.normal(shape=(2, 2)),
        ]
    ).eval()
    assert made[1].dtype == np.int32
    for out, want in zip(
        made, (np.zeros((2, 3)), np.ones(2), [3, 3], [0, 2, 4], np.eye(2), [0, 0.5, 1])
    ):
        np.testing.assert_array_equal(out.asnumpy(), want)
    assert ((made[6].asnumpy() >= 2) & (made[6].asnumpy() < 3)).all() and made[7].shape == (2, 2)
    drawn = sym.random.normal(sym.var("mu"), sym.var("sigma"), shape=5).eval(
        mu=mx.nd.array([0, 99]), sigma=mx.nd.ones(2)
    )[0]
    assert drawn.shape == (2, 5) and drawn.asnumpy()[1].min() > 80
    with pytest.raises(mx.MXNetError, match="must all be Symbols or all be numbers"):
        sym.random.uniform(sym.var("low"), 3)


def test_split_v2():
    a = sym.var("a")
    for cut, want in (
        (2, [[0, 1], [2, 3]]),
        ((1,), [[0], [1, 2, 3]]),
        ([1, 3], [[0], [1, 2], [3]]),
    ):
        assert [o.asnumpy().tolist() for o in sym.split_v2(a, cut).eval(a=mx.nd.arange(4))] == want
    assert a.split_v2(2).list_outputs() == ["_split_v23_output0", "_split_v23_output1"]


def test_namespaces_and_signatures():
    import inspect

    a = sym.var("a")
    assert (
        sym.linalg.gemm2(a, a).name == "gemm20"
        and sym.contrib.arange_like(a).name == "arange_like0"
    )
    assert (
        sym._internal._plus_scalar(a, scalar=2).attr("scalar") == "2"
        and sym.op.relu(a).name == "relu0"
    )
    assert list(inspect.signature(sym.FullyConnected).parameters)[:4] == [
        "data",
        "weight",
        "bias",
        "num_hidden",
    ]
    assert (
        a.relu().name == "relu1" and a.sum(axis=1).attr("axis") == "1" and a.T.name == "transpose0"
    )
    with pytest.raises(AttributeError):
        _ = sym.no_such_operator
    with pytest.raises(AttributeError):
        _ = sym.linalg.no_such_operator


def test_gradient_symbol():
    a = sym.var("a", shape=(3,))
    grad = sym.sum(a * a * a).gradient(["a"])
    np.testing.assert_allclose(
        grad.eval(a=mx.nd.array([1, 2, 3]))[0].asnumpy(), [3, 12, 27], rtol=1e-6
    )


def test_debug_str_names_everything():
    text = net().debug_str()
    assert (
        "Op:FullyConnected, Name=fc" in text
        and "arg[1]=fc_weight(0)" in text
        and "num_hidden=3" in text
    )


def test_attributes_of_a_node_become_text():
    """As gluoncv gives them: MXNet keeps an Initializer's address, from which nothing is made."""
    x = sym.var("x")
    y = sym.FullyConnected(x, num_hidden=2, name="y", attr={"__init__": object(), "__lr_mult__": 3})
    assert y.attr("__init__") is None and y.attr("__lr_mult__") == "3"


def test_operators_without_parameters_ignore_them():
    assert sym.zeros_like(sym.var("x"), dtype="float16").infer_shape(x=(2,))[1] == [(2,)]

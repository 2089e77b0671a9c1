"""mx.np in graphs: one program for np code and nd code, Symbols, shapes, files, mixed precision."""

import json
from pathlib import Path

import numpy as onp
import plait as mx
import pytest
from plait import np, npx
from plait.gluon import nn
from plait.graph.graph import topological
from plait.kernels import precision

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def classic_afterwards():
    yield
    npx.reset_np()


def var(name, **given):
    return mx.sym.var(name, **given).as_np_ndarray()


# ---- one program ---------------------------------------------------------------------------------


class Perceptron(mx.gluon.HybridBlock):
    """Two layers and a loss, written with the operators of a subclass."""

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.w1 = self.params.get("w1", shape=(8, 4))
            self.b1 = self.params.get("b1", shape=(8,))
            self.w2 = self.params.get("w2", shape=(3, 8))


class WrittenForNd(Perceptron):
    def hybrid_forward(self, F, x, label, w1, b1, w2):
        h = F.relu(F.FullyConnected(x, w1, b1, num_hidden=8))
        h = F.broadcast_mul(h, 2 - h) * 0.5 + 1
        y = F.log_softmax(F.FullyConnected(h, w2, num_hidden=3, no_bias=True))
        return F.broadcast_sub(F.mean(y, axis=1), F.pick(y, label))


class WrittenForNp(Perceptron):
    def hybrid_forward(self, F, x, label, w1, b1, w2):
        h = F.npx.relu(F.npx.fully_connected(x, w1, b1, num_hidden=8))
        h = h * (2 - h) * 0.5 + 1
        y = F.npx.log_softmax(F.npx.fully_connected(h, w2, num_hidden=3, no_bias=True))
        return F.np.mean(y, axis=1) - F.npx.pick(y, label)


class WrittenForMx(Perceptron):
    def hybrid_forward(self, F, x, label, w1, b1, w2):
        """Functions of mx.np take Symbols, too."""
        h = npx.relu(npx.fully_connected(x, w1, b1, num_hidden=8))
        h = np.multiply(h, 2 - h) * 0.5 + 1
        y = npx.log_softmax(npx.fully_connected(h, w2, num_hidden=3, no_bias=True))
        return y.mean(axis=1) - npx.pick(y, label)


def trained(cls, module):
    """(value, gradients, operators and memory of the programs) of a step of a hybridized block."""
    net = cls()
    net.initialize(mx.init.Constant(0.1))
    net.hybridize()
    x = module.array(onp.arange(8, dtype="float32").reshape(2, 4))
    label = module.array([0, 2])
    with mx.autograd.record():
        loss = net(x, label)
    loss.backward()
    (trace,) = net._traces.values()
    (entry,) = trace.graph.entries.values()
    programs = [entry.forward(tier).program for tier in (0, 1)]
    graph = [n.op.name for n in topological(entry.forward(0).whole("outputs")[0]) if n.op]
    runs = [([op.name for op in p.ops], p.out_specs, p.arena_bytes) for p in programs]
    return loss, [p.grad() for p in net.collect_params().values()], (graph, runs)


def test_np_code_and_nd_code_give_one_program():
    loss, grads, programs = trained(WrittenForNd, mx.nd)
    npx.set_np()
    for cls in (WrittenForNp, WrittenForMx):
        got, got_grads, got_programs = trained(cls, np)
        assert type(got) is np.ndarray
        assert got_programs == programs
        assert got.asnumpy().tolist() == loss.asnumpy().tolist()
        for a, b in zip(got_grads, grads, strict=True):
            assert type(a) is np.ndarray
            assert a.asnumpy().tolist() == b.asnumpy().tolist()


def test_arrays_of_both_kinds_have_traces_of_their_own():
    class Compare(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x == 1

    net = Compare()
    net.hybridize()
    values = onp.float32([1, 2])
    assert net(mx.nd.array(values)).dtype == onp.float32
    assert net(np.array(values)).dtype == onp.bool_
    assert net(mx.nd.array(values)).dtype == onp.float32


def test_forward_with_functions_of_np_is_traced_inside_a_hybridized_block():
    class Scale(mx.gluon.HybridBlock):
        def forward(self, x):
            return np.add(npx.relu(x), x[0, 0]) if x[0, 0].shape == () else None

    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), Scale())
    npx.set_np()
    net.initialize()
    x = np.array([[1.0, -2.0], [3.0, 4.0]])
    eager = net(x).asnumpy()
    net.hybridize()
    assert net(x).asnumpy().tolist() == eager.tolist()
    assert net(x).asnumpy().tolist() == eager.tolist()


# ---- Symbols -------------------------------------------------------------------------------------


def test_what_is_computed_from_an_np_symbol_is_one():
    x = var("x")
    cls = mx.sym.numpy._Symbol
    for made in (x + 1, 2 - x, x > 1, mx.sym.relu(x), npx.relu(x), mx.sym.np.sum(x), np.mean(x)):
        assert type(made) is cls
    assert type(x.as_nd_ndarray()) is mx.sym.Symbol
    assert type(x.as_nd_ndarray().as_np_ndarray()) is cls
    assert mx.sym.np is mx.sym.numpy
    assert mx.nd.np is np
    assert mx.nd.npx is npx


def test_symbols_with_numbers_and_lists():
    x = var("x")
    for made in (mx.sym.np.add(x, 2), mx.sym.np.add(2, x), np.add(x, 2)):
        (out,) = made.eval(x=np.array([1.0, 2.0]))
        assert out.asnumpy().tolist() == [3, 4]


def test_executors_keep_the_order_of_arguments():
    """A front may read its inputs in another order, or not at all."""
    x, mask = var("x"), var("mask")
    made = mx.sym.npx.masked_softmax(x, mask)
    assert made.list_arguments() == ["x", "mask"]
    arrays = {"x": np.array([[1.0, 2.0, 3.0]]), "mask": np.array([[1.0, 1.0, 0.0]])}
    (out,) = made.bind(mx.cpu(), arrays, grad_req="null").forward()
    e = onp.exp([1.0, 2.0])
    onp.testing.assert_allclose(out.asnumpy(), [[*(e / e.sum()), 0]], rtol=1e-6)
    executor = made.simple_bind(x=(1, 3), mask=(1, 3))
    executor.copy_params_from({"x": arrays["x"], "mask": arrays["mask"]})
    executor.forward(is_train=True)
    executor.backward(np.array([[1.0, 0.0, 0.0]]))
    p = e / e.sum()
    want = [[p[0] * (1 - p[0]), -p[0] * p[1], 0]]
    onp.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("make", "given", "expected"),
    [
        (lambda x, y: x + y, {"x": (0, 3), "y": (2, 1)}, (2, 3)),
        (lambda x, y: x * 2 - 1, {"x": (0, 3)}, (0, 3)),
        (lambda x, y: mx.sym.np.sum(x, axis=0), {"x": (0, 3)}, (3,)),
        (lambda x, y: mx.sym.npx.reshape(x, (-5, -4)), {"x": (2, 3, 0)}, (6, 0)),
        (lambda x, y: mx.sym.np.mean(x), {"x": (2, 3)}, ()),
    ],
)
def test_partly_unknown_shapes_go_through_fronts(make, given, expected):
    made = make(var("x"), var("y"))
    shapes = {k: v for k, v in given.items() if k in made.list_arguments()}
    assert made.infer_shape_partial(**shapes)[1] == [expected]


def test_shapes_behind_a_front_are_inferred():
    assert npx.fully_connected is not mx.sym.npx.fully_connected  # in whatever order they are asked
    net = mx.sym.npx.fully_connected(npx.relu(var("x")) + 1, num_hidden=3, name="fc")
    arguments, outputs, _ = net.infer_shape(x=(2, 5))
    assert dict(zip(net.list_arguments(), arguments))["fc_weight"] == (3, 5)
    assert outputs == [(2, 3)]


def test_shapes_under_np_shape():
    x = var("x") + 1
    assert x.infer_shape_partial(x=(0, 3))[1] == [(0, 3)]
    with mx.np_shape(True):
        assert x.infer_shape(x=(0, 3))[1] == [(0, 3)]  # no elements
        assert x.infer_shape_partial(x=(-1, 3))[1] == [(-1, 3)]
        assert x.infer_shape(x=())[1] == [()]
        dense = nn.Dense(3)
        assert dense.weight.shape == (3, -1)
        assert '"__shape__": "(3, -1)"' in dense(mx.sym.var("data")).tojson()
    assert dense.weight.shape == (3, 0)


def test_internals_and_drawing():
    net = npx.relu(var("x") + 1)
    assert net.get_internals().list_outputs()[0] == "x"
    assert [n["op"] for n in json.loads(net.tojson())["nodes"]] == [
        "null",
        "_npi_add_scalar",
        "_npx_relu",
    ]
    assert "_npi_add_scalar" in mx.viz.plot_network(net).source


class Indexed(mx.gluon.HybridBlock):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def hybrid_forward(self, F, x):
        return self.key(x)


@pytest.mark.parametrize(
    "key",
    [
        lambda x: x[1, 2],
        lambda x: x[-1],
        lambda x: x[:, 1:],
        lambda x: x[::-1, None, ..., 0],
        lambda x: x[(x[:, 0] * 0 + 1).astype("int32")],
        lambda x: x[(x[:, 0] * 0).astype("int32"), (x[:, 1] * 0 + 2).astype("int32")],
        lambda x: x[x > 2],
        lambda x: x.T.reshape(2, -1).sum(axis=0),
        lambda x: x.max() + x.mean(),
        lambda x: (x @ x.T).flatten(),
        lambda x: np.concatenate([x, np.expand_dims(x[0], 0)]),
        lambda x: [row.sum() for row in x],
    ],
    ids=range(12),
)
def test_traced_arrays_have_numpys_indexing_and_methods(key):
    npx.set_np()
    values = onp.arange(6.0, dtype="float32").reshape(2, 3)
    net = Indexed(key)
    found = []
    for _ in range(2):
        made = net(np.array(values))
        made = made if isinstance(made, list) else [made]
        assert {type(m) for m in made} == {np.ndarray}
        found.append([(m.shape, m.asnumpy().tolist()) for m in made])
        net.hybridize()
    assert found[0] == found[1]


# ---- files ---------------------------------------------------------------------------------------


def test_file_that_mxnet_wrote_under_set_np():
    text = (HERE / "npnet-symbol.json").read_text()
    arrays = mx.nd.load(str(HERE / "npnet-0000.params"))
    x = onp.float32([[1, 2], [3, 4]])
    weight, bias = (arrays[f"arg:dense2_{n}"].asnumpy() for n in ("weight", "bias"))
    for module, switch in ((np, npx.set_np), (mx.nd, npx.reset_np)):
        switch()
        files = [str(HERE / f) for f in ("npnet-symbol.json", "npnet-0000.params")]
        out = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])(module.array(x))
        onp.testing.assert_allclose(out.asnumpy(), x @ weight.T + bias, rtol=1e-6)
    npx.set_np()
    assert json.loads(mx.sym.load_json(text).tojson()) == json.loads(text)
    npx.reset_np()
    assert "is_np_shape" not in json.loads(mx.sym.load_json(text).tojson())["attrs"]


GRAPHS = json.loads((HERE / "graphs.json").read_text())


@pytest.mark.parametrize("name", GRAPHS["graphs"])
def test_graph_that_mxnet_wrote(name):
    """Symbols of blocks with F.np and F.npx, and what the real MXNet computed by them. The file
    that plait writes has the same nodes."""
    case = GRAPHS["graphs"][name]
    net = mx.sym.load_json(json.dumps(case["symbol"]))
    x = np.array(GRAPHS["input"])
    given = {n: x for n in net.list_arguments()}
    (out,) = net.bind(mx.cpu(), given, grad_req="null").forward()
    assert list(out.shape) == case["shape"]
    assert onp.dtype(out.dtype).name == case["dtype"]
    onp.testing.assert_allclose(out.asnumpy().reshape(-1), case["values"], rtol=1e-5, atol=2e-6)
    npx.set_np()
    nodes = json.loads(net.tojson())["nodes"]
    assert nodes == case["symbol"]["nodes"]


# ---- mixed precision -----------------------------------------------------------------------------

PAIRS = {  # np code, nd code
    "add": (lambda F, x: x + x * x, lambda F, x: F.broadcast_add(x, F.broadcast_mul(x, x))),
    "sum": (lambda F, x: F.np.sum(x, axis=0), lambda F, x: F.sum(x, axis=0)),
    "mean": (lambda F, x: F.np.mean(x, axis=0), lambda F, x: F.mean(x, axis=0)),
    "power": (lambda F, x: x**x, lambda F, x: F.broadcast_power(x, x)),
    "number": (lambda F, x: x**2 + 1, lambda F, x: F._power_scalar(x, scalar=2) + 1),
    "erfinv": (lambda F, x: F.npx.erfinv(x), lambda F, x: F.erfinv(x)),
    "relu": (lambda F, x: F.npx.relu(x), lambda F, x: F.relu(x)),
    "dense": (
        lambda F, x: F.npx.fully_connected(x, x, num_hidden=2, no_bias=True),
        lambda F, x: F.FullyConnected(x, x, num_hidden=2, no_bias=True),
    ),
    "softmax": (lambda F, x: F.npx.softmax(x), lambda F, x: F.softmax(x)),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("target", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", PAIRS)
def test_mixed_precision_gives_np_the_dtypes_of_nd(name, target, dtype):
    if dtype == "float16":
        dtype = target
    values = onp.float32([[0.25, 0.5], [0.125, 0.75]])
    policy = precision.policy(target)
    found = []
    for function, of_np in zip(PAIRS[name], (True, False)):
        for hybrid in (False, True):
            net = nn.HybridLambda(lambda F, x, function=function: function(F, x))
            if hybrid:
                net.hybridize()
            x = mx.nd.array(values).astype(dtype)
            x = x.as_np_ndarray() if of_np else x
            with precision.forced(policy):
                out = net(x)
            found.append((str(out._spec.dtype), out.astype("float32").asnumpy().tolist()))
    assert found == [found[0]] * 4


def test_converted_symbols_cast_before_fronts():
    net = mx.sym.np.sum(npx.relu(mx.sym.npx.fully_connected(var("x"), num_hidden=3, name="fc")))
    made = mx.contrib.amp.convert_symbol(net)
    casts = [n["name"] for n in json.loads(made.tojson(remove_amp_cast=False))["nodes"]]
    assert [n for n in casts if n.endswith("amp_cast_float32")]
    shapes = {"x": (2, 4), "fc_weight": (3, 4), "fc_bias": (3,)}
    executor = made.simple_bind(**shapes)
    assert executor.forward()[0].dtype == onp.float32

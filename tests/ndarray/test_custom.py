"""mx.operator: operators in Python, eager, symbolic and hybridized. Expected texts are MXNet's."""

import json
import threading

import numpy as np
import plait as mx
import pytest
from plait import MXNetError, autograd, gluon, nd, sym
from plait.engine import set_naive


class Square(mx.operator.CustomOp):
    """a = scale x^2, b = x + w; the auxiliary state counts the forwards."""

    seen: list = []

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen.append((is_train, autograd.is_recording(), autograd.is_training()))
        self.kept = in_data[0]
        self.assign(out_data[0], req[0], self.scale * in_data[0] * in_data[0])
        self.assign(out_data[1], req[1], nd.array(in_data[0].asnumpy() + in_data[1].asnumpy()))
        aux[0][:] = aux[0] + 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], 2 * self.scale * self.kept * out_grad[0] + out_grad[1])
        self.assign(in_grad[1], req[1], out_grad[1])


@mx.operator.register("test_square")
class SquareProp(mx.operator.CustomOpProp):
    def __init__(self, scale="1"):
        super().__init__(need_top_grad=True)
        assert isinstance(scale, str)
        self.scale = float(scale)

    def list_arguments(self):
        return ["data", "w"]

    def list_outputs(self):
        return ["a", "b"]

    def list_auxiliary_states(self):
        return ["count"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0], in_shape[0]], [[1]]

    def infer_type(self, in_type):
        return in_type, [in_type[0]] * 2, [np.float32]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        assert ctx == mx.cpu(0)
        assert in_shapes[2] == [1]
        return Square(self.scale)


class SoftmaxOp(mx.operator.CustomOp):
    """The loss layer of MXNet's tutorial."""

    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        y = np.exp(x - x.max(axis=1, keepdims=True))
        self.assign(out_data[0], req[0], mx.nd.array(y / y.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        label = in_data[1].asnumpy().ravel().astype(int)
        y = out_data[0].asnumpy()
        y[np.arange(label.shape[0]), label] -= 1.0
        self.assign(in_grad[0], req[0], mx.nd.array(y))


@mx.operator.register("test_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return SoftmaxOp()


class FailOp(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])
        if in_data[0].asnumpy()[0] < 0:
            raise ZeroDivisionError("negative in forward")

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        raise KeyError("in backward")


@mx.operator.register("test_fail")
class FailProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return FailOp()


@pytest.fixture(params=[False, True], ids=["threaded", "naive"])
def engine(request):
    set_naive(request.param)
    yield
    set_naive(False)


def square(x, w, count, scale):
    return nd.Custom(x, w, count, op_type="test_square", scale=scale)


@pytest.mark.usefixtures("engine")
def test_eager_outputs_gradients_and_auxiliary_state():
    x, w, count = nd.array([1.0, 2.0]), nd.array([3.0, 4.0]), nd.zeros((1,))
    x.attach_grad()
    w.attach_grad()
    Square.seen.clear()
    with autograd.record():
        a, b = square(x, w, count, 2.5)
        loss = (a * nd.array([1, 10])).sum() + 3 * b.sum()
    loss.backward()
    assert a.asnumpy().tolist() == [2.5, 10]
    assert b.asnumpy().tolist() == [4, 6]
    assert x.grad.asnumpy().tolist() == [2 * 2.5 + 3, 4 * 2.5 * 10 + 3]
    assert w.grad.asnumpy().tolist() == [3, 3]
    assert count.asscalar() == 1
    assert Square.seen == [(True, False, True)]
    square(x, w, count, 2.5)[0].wait_to_read()
    assert Square.seen[1] == (False, False, False)


@pytest.mark.usefixtures("engine")
def test_the_instance_that_ran_forward_runs_backward():
    xs = [nd.array([float(i)]) for i in range(5)]
    for x in xs:
        x.attach_grad()
    with autograd.record():
        losses = [square(x, x, nd.zeros((1,)), 1)[0] for x in xs]
    for loss in reversed(losses):
        loss.backward()
    assert [x.grad.asscalar() for x in xs] == [0, 2, 4, 6, 8]


@pytest.mark.usefixtures("engine")
def test_many_in_flight_and_from_several_threads():
    def work(at):
        y = nd.array([float(at)])
        for _ in range(12):
            y = nd.Custom(y, y, nd.zeros((1,)), op_type="test_square", scale=1)[1] + 1
        results[at] = y.asscalar()

    results: dict = {}
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {k: int(v) for k, v in results.items()} == {
        k: int(2.0**12 * (k + 1) - 1) for k in results
    }


def test_arrays_saved_by_forward_stay_valid():
    kept = []

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            kept.extend([in_data[0], in_data[0][1:]])
            self.assign(out_data[0], req[0], in_data[0] + 1)

    @mx.operator.register("test_keeps")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Op()

    nd.Custom(nd.array([5.0, 6.0]), op_type="test_keeps").wait_to_read()
    nd.ones((2,)).wait_to_read()
    assert kept[0].asnumpy().tolist() == [5, 6]
    with pytest.raises(MXNetError, match="view of an argument of a custom operator"):
        (kept[1] + 1).asnumpy()


@pytest.mark.usefixtures("engine")
def test_errors_of_the_user_are_raised_with_their_traceback():
    with pytest.raises(ZeroDivisionError, match="negative in forward") as caught:
        nd.Custom(nd.array([-1.0]), op_type="test_fail").asnumpy()
    cause = caught.value.__cause__ or caught.value
    names = []
    trace = cause.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "forward" in names
    x = nd.array([1.0])
    x.attach_grad()
    with pytest.raises(KeyError, match="in backward"):
        with autograd.record():
            y = nd.Custom(x, op_type="test_fail")
        y.backward()
        x.grad.asnumpy()
    assert nd.Custom(x, op_type="test_fail").asscalar() == 1


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: nd.Custom(x, op_type="test_none"), "is not registered"),
        (lambda x: nd.Custom(x), "op_type.* is required"),
        (lambda x: nd.Custom(x, x, x, op_type="test_square", zork=1), "does not take"),
        (lambda x: nd.Custom(x, op_type="test_square"), "needs 3 inputs"),
        (lambda x: nd.Custom(x, nd.ones((3,)), x, op_type="test_square"), "w must have shape"),
    ],
)
def test_wrong_calls(call, text):
    with pytest.raises(MXNetError, match=text):
        call(nd.array([1.0, 2.0]))


def test_symbol_names_json_and_executor():
    s = sym.Custom(sym.var("data"), op_type="test_square", name="cc", scale=2)
    assert s.list_arguments() == ["data", "cc_w"]
    assert s.list_auxiliary_states() == ["cc_count"]
    assert s.list_outputs() == ["cc_a", "cc_b"]
    graph = json.loads(s.tojson())
    attrs = {"op_type": "test_square", "scale": "2"}
    assert [(n["op"], n.get("attrs")) for n in graph["nodes"]] == [
        ("null", None),
        ("null", attrs),
        ("null", attrs),
        ("Custom", attrs),
    ]
    assert graph["nodes"][3]["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 1]]
    assert graph["node_row_ptr"] == [0, 1, 2, 3, 5]
    again = sym.load_json(s.tojson())
    assert again.tojson() == s.tojson()
    exe = again.simple_bind(mx.cpu(), data=(2,), grad_req={"data": "add", "cc_w": "write"})
    for _ in range(2):
        exe.forward(is_train=True, data=nd.array([1, 2]), cc_w=nd.array([3, 4]))
        exe.backward([nd.ones(2), nd.ones(2)])
    assert exe.outputs[0].asnumpy().tolist() == [2, 8]
    assert exe.grad_dict["data"].asnumpy().tolist() == [10, 18]
    assert exe.grad_dict["cc_w"].asnumpy().tolist() == [1, 1]
    assert exe.aux_dict["cc_count"].asscalar() == 2
    assert sym.Custom(
        w=sym.var("q"), data=sym.var("p"), op_type="test_square"
    ).list_arguments() == [
        "p",
        "q",
    ]


def test_loss_layer_needs_no_head_gradient():
    s = sym.Custom(
        data=sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc"),
        label=sym.var("label"),
        op_type="test_softmax",
        name="softmax",
    )
    assert s.infer_shape(data=(2, 4))[0] == [(2, 4), (3, 4), (3,), (2,)]
    exe = s.simple_bind(mx.cpu(), data=(2, 4))
    exe.forward(is_train=True, data=nd.ones((2, 4)), label=nd.array([0, 2]))
    exe.backward()
    want = np.full((2, 3), 1 / 3) - np.array([[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(exe.grad_dict["fc_bias"].asnumpy(), want.sum(0), rtol=1e-6)


class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(3)

    def hybrid_forward(self, F, x, label):
        return F.Custom(self.dense(x), label, op_type="test_softmax")


def test_hybridized_equals_eager(tmp_path):
    net = Net()
    net.initialize(mx.init.Uniform(0.5))
    x, label = nd.random.normal(shape=(4, 5)), nd.array([0, 1, 2, 1])

    def step():
        with autograd.record():
            y = net(x, label)
        y.backward()
        return y.asnumpy(), net.dense.weight.grad().asnumpy()

    eager = step()
    net.hybridize()
    for _ in range(4):
        for a, b in zip(step(), eager):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        mx.wait_compiled()
    net.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data0", "data1"], str(tmp_path / "net-0000.params")
    )
    np.testing.assert_allclose(block(x, label).asnumpy(), eager[0], rtol=1e-5)


def test_two_forwards_before_two_backwards_of_a_hybridized_block():
    class Block(gluon.HybridBlock):
        def hybrid_forward(self, F, x, w, count):
            return F.Custom(x, w, count, op_type="test_square", scale=1)

    block = Block()
    block.hybridize()
    xs = [nd.array([1.0]), nd.array([5.0])]
    for x in xs:
        x.attach_grad()
    with autograd.record():
        ys = [block(x, x, nd.zeros((1,)))[0] for x in xs]
    ys[0].backward()
    ys[1].backward()
    assert [x.grad.asscalar() for x in xs] == [2, 10]


def test_declared_dependencies_decide_what_backward_gets():
    got = {}

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            got.update(data=in_data[0].asnumpy(), out=out_data[0].asnumpy())
            self.assign(in_grad[0], "add", out_grad[0])
            self.assign(in_grad[0], "inplace", in_grad[0] * 2)
            self.assign(in_grad[0], "null", in_grad[0] * 2)

    @mx.operator.register("test_depends")
    class Prop(mx.operator.CustomOpProp):
        def declare_backward_dependency(self, out_grad, in_data, out_data):
            return [*out_grad, *out_data]

        def create_operator(self, ctx, shapes, dtypes):
            return Op()

    x = nd.array([3.0])
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type="test_depends")
    y.backward(nd.array([7.0]))
    assert x.grad.asscalar() == 14
    assert got == {"data": [0], "out": [6]}


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_dtypes_arrive_as_they_are(dtype):
    seen = []

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            seen.append(in_data[0].dtype)
            self.assign(out_data[0], req[0], in_data[0] + 1)

    @mx.operator.register("test_dtype")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Op()

    out = nd.Custom(nd.ones((2,), dtype=dtype), op_type="test_dtype")
    assert out.dtype == np.dtype(dtype).type
    assert out.asnumpy().tolist() == [2, 2]
    assert seen == [np.dtype(dtype).type]


@pytest.mark.filterwarnings("ignore:.*has been deprecated")
@pytest.mark.parametrize("kind", ["NumpyOp", "NDArrayOp"])
def test_older_custom_operator_classes(kind):
    class Cube(getattr(mx.operator, kind)):
        def forward(self, in_data, out_data):
            out_data[0][:] = in_data[0] ** 3

        def backward(self, out_grad, in_data, out_data, in_grad):
            in_grad[0][:] = 3 * in_data[0] ** 2 * out_grad[0]

    s = Cube()(data=sym.var("data"), name="cube")
    exe = s.simple_bind(mx.cpu(), data=(2,))
    exe.forward(is_train=True, data=nd.array([1, 2]))
    exe.backward(nd.array([1, 10]))
    assert exe.outputs[0].asnumpy().tolist() == [1, 8]
    assert exe.grad_dict["data"].asnumpy().tolist() == [3, 120]


def test_custom_operator_registry_queries():
    assert {"Custom", "Activation", "_npi_Custom"} <= set(
        mx.operator.get_all_registered_operators()
    )
    found = mx.operator.get_operator_arguments("Activation")
    assert found.narg == 2
    assert found.names == ["data", "act_type"]
    assert found.types == [
        "NDArray-or-Symbol",
        "{'relu', 'sigmoid', 'softrelu', 'softsign', 'tanh'}, required",
    ]


class Clip(autograd.Function):
    """Its gradient is not that of its forward."""

    def forward(self, x, scale):
        self.save_for_backward(x)
        self.limit = 2.0
        return nd.array(np.clip(x.asnumpy(), -self.limit, self.limit)), x * scale

    def backward(self, dy, dz):
        (x,) = self.saved_tensors
        return dy * 10 + dz * x, None


@pytest.mark.parametrize("hybridize", [False, True])
def test_autograd_function_inside_a_block(hybridize, tmp_path):
    class Block(gluon.HybridBlock):
        def hybrid_forward(self, F, x, scale):
            y, z = Clip()(x * 1, scale)
            return y + z

    block = Block()
    if hybridize:
        block.hybridize()
    x, scale = nd.array([1.0, 5.0]), nd.array([2.0, 3.0])
    x.attach_grad()
    for _ in range(3):
        with autograd.record():
            y = block(x, scale)
        y.backward()
        assert y.asnumpy().tolist() == [3, 17]
        assert x.grad.asnumpy().tolist() == [11, 15]
    if hybridize:
        block.export(str(tmp_path / "block"))
        with pytest.raises(MXNetError, match="an autograd.Function is not in the file"):
            sym.load(str(tmp_path / "block-symbol.json"))


def test_autograd_function_on_symbols_without_shapes():
    with pytest.raises(MXNetError, match="needs their shapes"):
        Clip()(sym.var("x"), sym.var("s"))


def test_the_profile_names_custom_operators():
    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

    @mx.operator.register("profiled_twice")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Twice()

    mx.profiler.set_state("run")
    nd.Custom(nd.ones((2,)), op_type="profiled_twice").wait_to_read()
    mx.nd.waitall()
    mx.profiler.set_state("stop")
    found = json.loads(mx.profiler.dumps(format="json", reset=True))
    assert found["Time"]["Custom Operator"]["profiled_twice::pure_python"]["Count"] == 1

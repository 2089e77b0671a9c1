"""What `make fuzz` has found, each as a test of its class."""

import json

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.kernels.record import REGISTRY, lookup
from plait.ndarray.invoke import invoke

COUNTED = sorted(
    {op.name for op in REGISTRY.values() if op.variadic_key and op.samples and op.n_outputs != 0}
)


def call(name, *arrays, **attrs):
    return invoke(lookup(name), [nd.array(a) for a in arrays], attrs)


def test_a_view_has_the_bytes_of_its_input():
    """_from_memory(shape=(2, 3)) of two elements read four that were not there."""
    with pytest.raises(mx.MXNetError, match="its output is its input's memory, of 8 bytes, not of"):
        call("_from_memory", np.ones((2, 1)), shape=(2, 3), layout="")
    x = mx.sym.Variable("x")
    symbol = mx.sym.Reshape(x, shape=(3, 2))
    text = (
        symbol.tojson()
        .replace('"Reshape"', '"_from_memory"')
        .replace('"attrs": {', '"attrs": {"layout": "", ')
    )
    with pytest.raises(mx.MXNetError, match="its output is its input's memory"):
        mx.sym.load_json(text).bind(mx.cpu(), {"x": nd.ones((2, 1))}).forward()


@pytest.mark.parametrize("layout", ["no such", "None", "aab", "aB8c", "ab", "abcd", "(0, 1)"])
def test_a_layout_that_names_other_axes_is_refused(layout):
    with pytest.raises(mx.MXNetError, match="layout"):
        call("_reorder", np.ones((2, 3, 4)), layout=layout)


@pytest.mark.parametrize("name", COUNTED)
def test_the_number_of_inputs_is_the_one_that_is_given(name):
    """nd refused what sym took, and the other way round."""
    op = lookup(name)
    attrs = {
        p.name: v for s in op.samples[:1] for p in op.params for v in [s.attrs.get(p.name)] if v
    }
    attrs[op.variadic_key] = 7
    for make in (
        lambda: invoke(op, [nd.ones((2, 2))] * 2, attrs),
        lambda: getattr(mx.sym, op.name, mx.sym._internal)(
            mx.sym.var("a"), mx.sym.var("b"), **attrs
        ),
    ):
        with pytest.raises(mx.MXNetError, match=f"{op.variadic_key} is 7, but 2 inputs are given"):
            make()


@pytest.mark.parametrize("head", ["", [], [0], {}, None, 3, "ab", [0, None], [[0], 0]])
def test_malformed_heads_of_a_symbol_file(head):
    graph = json.loads(mx.sym.relu(mx.sym.var("x")).tojson())
    with pytest.raises(mx.MXNetError, match="is not a symbol|which does not exist"):
        mx.sym.load_json(json.dumps({**graph, "heads": [head]}))


@pytest.mark.parametrize("name, count", [("SliceChannel", "num_outputs"), ("split", "num_outputs")])
def test_an_operator_without_outputs_is_refused(name, count):
    for n in (0, -1, -(2**31)):
        with pytest.raises(mx.MXNetError, match="at least one output|at least 1|must be"):
            getattr(mx.sym, name)(mx.sym.var("x"), **{count: n}).list_outputs()


@pytest.mark.parametrize("field", ["name", "op"])
def test_names_in_symbol_files_are_texts(field):
    graph = json.loads(mx.sym.relu(mx.sym.var("x")).tojson())
    for value in (None, 3, [0], {}):
        graph["nodes"][1][field] = value
        with pytest.raises(mx.MXNetError, match="its name and op must be texts"):
            mx.sym.load_json(json.dumps(graph))


def test_the_vector_of_the_unknown_token_has_the_size_of_the_others(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("<unk> 0 0 0\nthe 1 2\n")
    with pytest.raises(mx.MXNetError, match="line 1 of .*: the dimension of <unk> is 3 but that"):
        mx.contrib.text.embedding.CustomEmbedding(str(path))


@pytest.mark.parametrize("name, attrs", [("_diag_grad", {}), ("broadcast_to", {})])
def test_a_shape_that_no_machine_holds_is_out_of_memory(name, attrs):
    """NumPy's own MemoryError came from the array whose strides tell how to copy."""
    with pytest.raises(mx.MXNetError) as found:
        call(name, np.ones((1, 1)), shape=(1 << 20, 1 << 19), **attrs)
    assert isinstance(found.value, (MemoryError, ValueError))


def test_a_checkpoint_whose_keys_are_damaged(tmp_path):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    checkpoint = mx.checkpoint.Checkpoint(tmp_path / "run.ckpt", net=net)
    checkpoint.save()
    whole = (tmp_path / "run.ckpt").read_bytes()
    for word in (b'"values"', b'"grads"', b'"streams"', b'"parts"', b'"state"'):
        if word in whole:
            (tmp_path / "run.ckpt").write_bytes(whole.replace(word, word[:2] + b"-" + word[3:]))
            with pytest.raises(mx.checkpoint.StateError, match="damaged|holds"):
                checkpoint.restore()


@pytest.mark.parametrize("device", [1e30, True, "gpu(x)", "None(3)", b"x", ()])
def test_a_device_is_checked_wherever_attributes_are_parsed(device):
    for make in (mx.nd._internal._zeros, mx.sym._internal._zeros):
        with pytest.raises(
            mx.MXNetError, match="a device is written as|device_type must be one of"
        ):
            make(shape=(2,), ctx=device)
    for make in (mx.nd._internal._zeros, lambda **k: mx.sym._internal._zeros(**k).eval()[0]):
        assert make(shape=(2,), ctx="None").context == mx.cpu(0)


def test_bfloat16_of_one_number_keeps_its_shape():
    from plait.kernels.spec import from_bfloat16, round_to_bfloat16

    one = np.float32(1.5).reshape(())
    bits = round_to_bfloat16(one)
    assert bits.shape == () and from_bfloat16(bits).shape == () and from_bfloat16(bits) == 1.5


NOT_REPRESENTABLE = (1e308, -1e308, 2.0**63, -(2.0**63), 2.0**64, 9.25e18, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("number", (*NOT_REPRESENTABLE, 300.0, -300.0, 2.0**31, 1.9))
def test_numbers_beside_arrays_of_integers(number, dtype):
    """Truncated and wrapped; what no int64 holds is an end of the range, NaN is 0."""
    ends, bits = np.iinfo(dtype), np.iinfo(dtype).bits
    if np.isnan(number):
        want = 0
    elif -(2.0**63) <= number < 2.0**63:
        want = (int(number) - int(ends.min)) % (1 << bits) + int(ends.min)
    else:
        want = int(ends.max if number > 0 else ends.min)
    x = nd.zeros((3,), dtype=dtype)
    assert (x + number).asnumpy().tolist() == [want] * 3
    net = mx.gluon.nn.HybridLambda(lambda F, x: (x + 1) * 0 + number)
    net.hybridize()
    for _ in range(3):
        assert net(x).asnumpy().tolist() == [want] * 3
        mx.wait_compiled(60)


@pytest.mark.parametrize("slope", ["relu", "gelu"])
@pytest.mark.parametrize("m, n, k", [(2, 1, 5), (16, 1, 3), (1, 1, 4), (3, 2, 5), (20, 18, 5)])
def test_a_product_of_one_column_takes_the_slope(m, n, k, slope):
    """The gradient of a layer of one unit added the slope's argument instead of multiplying."""
    rng = np.random.default_rng(m)
    a, b, at = (rng.normal(size=s).astype("float32") for s in ((m, k), (k, n), (m, n)))
    if slope == "relu":
        factor = at > 0
    else:
        from scipy.special import ndtr

        factor = ndtr(at) + at * np.exp(-at * at / 2) / np.sqrt(2 * np.pi)
    got = call("_dense", a, b, at, residual=True, slope=slope).asnumpy()
    np.testing.assert_allclose(got, a.astype(float) @ b * factor, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_layer_of_one_unit():
    """As above, in a net: dense layers around one hidden unit, against NumPy."""
    rng = np.random.default_rng(3)
    x, w1, w2 = (rng.normal(size=s) for s in ((6, 4), (1, 4), (5, 1)))
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(1, use_bias=False, in_units=4, activation="relu"))
    net.add(mx.gluon.nn.Dense(5, use_bias=False, in_units=1))
    net.initialize()
    for p, w in zip(net.collect_params().values(), (w1, w2)):
        p.set_data(nd.array(w))
    net.hybridize()
    data = nd.array(x)
    data.attach_grad()
    hidden = x @ w1.T
    head = 2 * (np.maximum(hidden, 0) @ w2.T)
    want = (head @ w2 * (hidden > 0)) @ w1
    for _ in range(3):
        with mx.autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()
        np.testing.assert_allclose(data.grad.asnumpy(), want, rtol=1e-4, atol=1e-4)
        mx.wait_compiled(60)


@pytest.mark.parametrize(
    "name, shapes", [("dot", ((4,), (4, 3))), ("batch_dot", ((2, 3, 4), (2, 4, 5)))]
)
def test_a_csr_result_has_two_axes(name, shapes):
    """Graphs gave a dense result where nd refused."""
    arrays = [np.ones(s) for s in shapes]
    with pytest.raises(mx.MXNetError, match="a csr array has two axes"):
        call(name, *arrays, forward_stype="csr")
    net = mx.gluon.nn.HybridLambda(lambda F, *x: getattr(F, name)(*x, forward_stype="csr"))
    net.hybridize()
    with pytest.raises(mx.MXNetError, match="a csr array has two axes"):
        net(*map(nd.array, arrays))


def test_what_has_no_outputs_is_no_symbol():
    """It was an empty symbol, which does nothing."""
    with pytest.raises(mx.MXNetError, match=r"without outputs[^$]*call nd.reset_arrays"):
        mx.sym.reset_arrays(mx.sym.var("x"), num_arrays=1)
    x = nd.ones((3,))
    nd.reset_arrays(x, num_arrays=1)
    assert not x.asnumpy().any()


@pytest.mark.parametrize("beta", [1.0, 1.5, np.inf, np.nan])
@pytest.mark.parametrize(
    "name, which", [("adam", "beta2"), ("adam", "beta1"), ("nadam", "beta2"), ("adamax", "beta1")]
)
def test_moments_that_never_fill_are_refused(name, which, beta):
    optimizer = mx.optimizer.create(name, **{which: beta})
    updater = mx.optimizer.get_updater(optimizer)
    with pytest.raises(ValueError, match=f"{which} must lie between -1 and 1") as found:
        updater(0, nd.ones((3,)), nd.ones((3,)))
    assert isinstance(found.value, mx.MXNetError)


@pytest.mark.parametrize(
    "key, value",
    [
        ("lr", "x"),
        ("lr", None),
        ("wd", [1]),
        ("beta1", None),
        ("num_update", "3"),
        ("clip_gradient", "x"),
    ],
)
def test_optimizer_states_of_another_kind_are_refused(key, value):
    def updater():
        made = mx.optimizer.get_updater(mx.optimizer.create("adam", clip_gradient=None))
        made(0, nd.ones((3,)), nd.ones((3,)))
        return made

    saved = updater()
    saved.optimizer.__dict__[key] = value
    with pytest.raises(mx.MXNetError, match=f"damaged: TypeError: {key} is"):
        updater().set_states(saved.get_states(dump_optimizer=True))
    saved = updater()
    saved.optimizer.clip_gradient = 2.0
    other = updater()
    other.set_states(saved.get_states(dump_optimizer=True))
    assert other.optimizer.clip_gradient == 2.0
    saved.optimizer.clip_gradient = None
    other.set_states(saved.get_states(dump_optimizer=True))
    assert other.optimizer.clip_gradient is None


@pytest.mark.parametrize("shape", [(0, 0, 3, 2**31 - 1, 2**31), (0, 2**62), (2**40, 0, 2**40)])
def test_an_empty_array_has_axes_that_numpy_holds(shape):
    """nd.zeros made it, and asnumpy raised NumPy's error."""
    with pytest.raises(MemoryError, match="no machine has the memory") as found:
        nd.zeros(shape)
    assert isinstance(found.value, mx.MXNetError)
    assert nd.zeros((0, 2**30)).asnumpy().shape == (0, 2**30)


@pytest.mark.parametrize("at", [-1, -1.5, 8, 12, 1e30])
def test_a_part_that_moves_out_of_its_array(at):
    """The place is a number that a later call of the same plan gives."""
    dy, attrs = np.ones((3, 2)), {"shape": (12,), "sizes": (3, 2), "steps": (2, 0)}
    assert call("_strided_grad", dy, at=1, **attrs).asnumpy()[[1, 3, 5]].tolist() == [2, 2, 2]
    with pytest.raises(mx.MXNetError, match="must lie|out of range"):
        call("_strided_grad", dy, at=at, **attrs).asnumpy()


def test_labels_that_are_not_finite():
    x, label = np.ones((2, 3)), np.zeros(2)
    attrs = {"ignore_label": float("inf"), "use_ignore": True}
    with mx.autograd.record():
        data = nd.array(x)
        data.attach_grad()
        out = invoke(lookup("SoftmaxOutput"), [data, nd.array(label)], attrs)
    out.backward()
    want = np.full((2, 3), 1 / 3) - np.eye(3)[[0, 0]]
    np.testing.assert_allclose(data.grad.asnumpy(), want, rtol=1e-6)
    a, b = mx.sym.var("a"), mx.sym.var("b")
    grads = {"a": nd.zeros((2, 3))}
    executor = mx.sym.SoftmaxOutput(a, b, **attrs).bind(
        mx.cpu(), {"a": nd.array(x), "b": nd.array(label)}, grads, {"a": "write", "b": "null"}
    )
    executor.forward(is_train=True)
    executor.backward()
    np.testing.assert_allclose(grads["a"].asnumpy(), want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_what_has_no_classes_has_no_loss(shape):
    """The graph's lowering raised an IndexError."""
    with pytest.raises(mx.MXNetError, match="at least 2 dimensions"):
        call("_softmax_output_grad", np.ones(shape), np.ones(shape))


def test_a_record_reads_no_more_than_its_file_has(tmp_path, monkeypatch):
    """A damaged length asked for 512 MiB."""
    path = tmp_path / "x.rec"
    path.write_bytes(b"\x0a\x23\xd7\xce" + b"\xff\xff\xff\x1f" + b"short")
    with mx.recordio.MXRecordIO(str(path), "r") as file:
        asked, read = [], file._file.read
        monkeypatch.setattr(
            file,
            "_file",
            type(
                "",
                (),
                {
                    "read": lambda self, n: asked.append(n) or read(n),
                    "tell": file._file.tell,
                    "fileno": file._file.fileno,
                    "close": file._file.close,
                },
            )(),
        )
        with pytest.raises(mx.MXNetError, match="is cut off: 536870911 bytes announced, 5 left"):
            file.read()
    assert max(asked) <= 8


@pytest.mark.parametrize("name", ["_power_scalar", "_scaled_power"])
def test_minus_infinity_to_the_power_of_a_half_is_infinity(name):
    """As C's pow and MXNet; the references took NumPy's square root, which is NaN."""
    x = np.array([-np.inf, 4.0, -4.0], "float32")
    wanted = np.array([np.inf, 2.0, np.nan], "float32")
    np.testing.assert_array_equal(call(name, x, scalar=0.5).asnumpy(), wanted)
    with np.errstate(invalid="ignore"):
        reference = lookup(name).ref(np, x, **lookup(name).parse({"scalar": 0.5}))
    np.testing.assert_array_equal(reference, wanted)


@pytest.mark.parametrize("stype, shape", [("row_sparse", ()), ("csr", (3,)), ("csr", (2, 3, 4))])
def test_a_shape_without_that_storage_type_is_refused_by_graphs_too(stype, shape):
    """A graph, which computes with dense arrays, gave cast_storage's input."""
    x = nd.ones((24,))[: int(np.prod(shape))].reshape(shape)
    symbol = mx.sym.cast_storage(mx.sym.Variable("x"), stype=stype)
    for run in (
        lambda: nd.cast_storage(x, stype=stype),
        lambda: symbol.bind(mx.cpu(), {"x": x}).forward(),
    ):
        with pytest.raises(mx.MXNetError, match="cast_storage: a "):
            run()


@pytest.mark.parametrize("axis, shape", [(0, (8, 0)), (1, (2, 0)), (-2, (8, 0)), (None, (0,))])
def test_repeating_nothing_takes_no_time(axis, shape):
    """The reference, NumPy's repeat, counted to 2 ** 31."""
    x = np.zeros((2, 0), "float32")
    assert lookup("repeat").ref(np, x, repeats=4, axis=axis).shape == np.repeat(x, 4, axis).shape
    assert call("repeat", x, repeats=4, axis=axis).shape == shape
    assert 0 in lookup("repeat").ref(np, x, repeats=2**31 - 1, axis=axis).shape


@pytest.mark.parametrize("act, attrs", [("Activation", ""), ("none such", "()"), ("relu", "1")])
def test_an_activation_that_is_none_is_refused(act, attrs):
    x, weight, bias = np.ones((1, 2, 4, 4)), np.ones((3, 2, 1, 1)), np.ones(3)
    with pytest.raises(mx.MXNetError, match="name no operator and its attributes"):
        call("_conv", x, weight, bias, kernel=(1, 1), num_filter=3, act=act, act_attrs=attrs)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8", "float16"])
@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_gradients_of_labels_of_any_dtype(dtype, normalization):
    """The number of valid labels was divided by in the labels' dtype: with whole numbers the
    gradient was 0."""
    n = 4000
    rng = np.random.default_rng(0)
    data, label = rng.normal(size=(n, 5)), rng.integers(0, 5, n)
    x = nd.array(data)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.SoftmaxOutput(
            x, nd.array(label, dtype=dtype), normalization=normalization, ignore_label=3
        )
    y.backward()
    p = np.exp(data) / np.exp(data).sum(1, keepdims=True) - np.eye(5)[label]
    scale = {"null": 1, "batch": n, "valid": (label != 3).sum()}[normalization]
    np.testing.assert_allclose(x.grad.asnumpy(), p / scale, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_indices_of_an_axis_without_elements_are_refused(axis):
    """The loop read at the place before the first one, outside of the array."""
    shape = (0, 2) if axis == 0 else (2, 0)
    with pytest.raises(IndexError, match=r"must be in \[0, 0\)"):
        nd.contrib.edge_id(nd.zeros(shape), nd.array([0, 1]), nd.array([0, 1])).wait_to_read()
    with pytest.raises(IndexError):
        mx.np.take_along_axis(
            mx.np.zeros(shape), mx.np.zeros((2, 2), dtype="int64"), axis
        ).wait_to_read()


@pytest.mark.parametrize("name", ["svd", "pinv", "svdvals"])
def test_singular_values_of_infinite_numbers_are_refused(name):
    """LAPACK looked for those of this matrix for ever; without vectors it raised its own error."""
    a = np.array(
        [
            [0.73, -0.31, np.inf, -1e-45],
            [-0.29, np.inf, 3.4e38, -0.2],
            [-3.4e38, 0.66, 65504, 65504],
        ]
    )
    with pytest.raises(mx.MXNetError, match="did not converge: a has values"):
        found = getattr(mx.np.linalg, name)(mx.np.array(a))
        (found[1] if name == "svd" else found).wait_to_read()


def test_the_gradient_of_an_infinite_determinant_ends():
    """It takes singular values, too."""
    x = mx.np.array([[np.inf, -0.31, 0.73], [0.2, np.inf, 3.4e38], [-3.4e38, 0.66, 65504]])
    x.attach_grad()
    with mx.autograd.record():
        y = mx.np.linalg.det(x)
    y.backward()
    assert np.isnan(x.grad.asnumpy()).all()

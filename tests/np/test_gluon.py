"""All of Gluon under set_np: results, gradients and files are those of the classic mode, and the
arrays are of mx.np."""

import numpy as onp
import plait as mx
import pytest
from gluon_rows import ROWS, Mode, block
from plait.ndarray.nesting import flatten

LARGE = ("alexnet", "vgg11", "densenet121", "inceptionv3", "squeezenet1.0")
RUN = {(kind, name): (shape, run) for kind, name, shape, run in ROWS}


@pytest.fixture(autouse=True)
def classic_afterwards():
    yield
    mx.npx.reset_np()


def computed(run, np_mode, hybrid):
    """(the Mode, the result) of a row."""
    (mx.npx.set_np if np_mode else mx.npx.reset_np)()
    mx.random.seed(11)
    mode = Mode(mx.np if np_mode else mx.nd, hybrid)
    return mode, run(mode)


def leaves(result):
    found, _ = flatten(result, mx.nd.NDArray, lambda *_: -1)
    return found


def shapes(result):
    if isinstance(result, (list, tuple)):
        return [shapes(r) for r in result]
    return result.shape


def close(a, b):
    onp.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=2e-5, atol=2e-6)


NOT_HYBRID = ("metric", "initializer", "utils")
MODES = [(*row, False) for row in RUN] + [(*row, True) for row in RUN if row[0] not in NOT_HYBRID]


@pytest.mark.parametrize(("kind", "name", "hybrid"), MODES)
def test_np_mode_is_classic_mode(kind, name, hybrid):
    expected, run = RUN[kind, name]
    _, classic = computed(run, False, hybrid)
    mode, got = computed(run, True, hybrid)
    if expected == "number":
        assert got == pytest.approx(classic, nan_ok=True)
        return
    assert shapes(got) == expected
    arrays = leaves(got)
    assert [type(a) for a in arrays] == [mx.np.ndarray] * len(arrays)
    for a, b in zip(arrays, leaves(classic), strict=True):
        assert a.dtype == b.dtype
        close(a, b)


BLOCKS = [row for row in ROWS if isinstance(row[-1], block)]
GRADIENTS = [(k, n) for k, n, *_ in BLOCKS if k in ("nn", "rnn", "loss") and n != "Embedding"]


@pytest.mark.parametrize("hybrid", [False, True], ids=["eager", "hybrid"])
@pytest.mark.parametrize(("kind", "name"), GRADIENTS, ids=lambda x: x)
def test_gradients(kind, name, hybrid):
    found = []
    for np_mode in (False, True):
        mode, _ = computed(RUN[kind, name][1], np_mode, hybrid)
        x = mode.inputs[0]
        x.attach_grad()
        mx.random.seed(5)
        with mx.autograd.record():
            out = mode.block(*mode.inputs)
            total = (out * out).sum()
        total.backward()
        weights = [p for p in mode.block.collect_params().values() if p.grad_req != "null"]
        found.append([x.grad, *[p.grad() for p in weights]])
    classic, got = found
    assert {type(g) for g in got} == {mx.np.ndarray}
    for a, b in zip(got, classic, strict=True):
        close(a, b)


@pytest.mark.parametrize(
    ("metric", "label", "pred", "expected"),
    [
        (mx.metric.Accuracy, [True, False], [True, True], 0.5),
        (mx.metric.F1, [True, False], [[0.1, 0.9], [0.8, 0.2]], 1.0),
        (mx.metric.MAE, 1.0, 3.0, 2.0),
        (mx.metric.MSE, 1.0, 3.0, 4.0),
        (mx.metric.Loss, 0.0, 3.0, 3.0),
    ],
)
def test_metrics_of_bools_and_scalars(metric, label, pred, expected):
    mx.npx.set_np()
    m = metric()
    m.update(*[mx.np.array(onp.asarray(x)) for x in (label, pred)])
    assert m.get()[1] == pytest.approx(expected)


def test_arrays_in_a_hybridized_block_say_what_to_write():
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return mx.np.concatenate([x, mx.np.array([[1.0, 2.0]])])

    mx.npx.set_np()
    net = Net()
    x = mx.np.array([[1.0, 2.0]])
    assert net(x).shape == (2, 2)
    net.hybridize()
    with pytest.raises(TypeError, match="fix: in a hybridized block make arrays by F.np"):
        net(x)


EXPORTED = [
    (kind, name)
    for kind, name, _, run in BLOCKS
    if name not in LARGE and isinstance(run.make(), mx.gluon.HybridBlock)
]


@pytest.mark.parametrize(("kind", "name"), EXPORTED, ids=lambda x: x)
def test_exported_files_load_in_both_modes(kind, name, tmp_path):
    mode, got = computed(RUN[kind, name][1], True, True)
    inputs, expected = mode.inputs, leaves(got)
    if kind == "rnn":  # states are inputs of the file
        states = mode.block.begin_state(4 if "NTC" in name else 2)
        assert {type(s) for s in states} == {mx.np.ndarray}
        inputs = [*inputs, *states]
        expected = leaves(mode.block(mode.inputs[0], states))
    mode.block.export(str(tmp_path / "net"))
    mode.block.save_parameters(str(tmp_path / "net.params"))
    names = ["data"] if len(inputs) == 1 else [f"data{i}" for i in range(len(inputs))]
    params = str(tmp_path / "net-0000.params") if mode.block.collect_params() else None
    for module in (mx.np, mx.nd):
        (mx.npx.set_np if module is mx.np else mx.npx.reset_np)()
        read = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), names, params)
        out = leaves(read(*[module.array(x.asnumpy()) for x in inputs]))
        assert {type(o) for o in out} == {module.ndarray if module is mx.np else mx.nd.NDArray}
        for a, b in zip(out, expected, strict=True):
            close(a, b)
        if params is not None:
            mode.block.load_parameters(str(tmp_path / "net.params"))
            close(leaves(mode.block(*mode.inputs))[0], expected[0])

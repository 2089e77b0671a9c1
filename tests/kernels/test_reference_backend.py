"""A device with a backend of its own (tests/reference_backend.py): a part of the records' tests on
it, and that programs, copies, files and training know it without a change of the package.

All of the records' tests: pytest --backend reference tests/kernels/test_records.py
"""

import pickle

import numpy as np
import plait as mx
import pytest
import samples
import test_records as derived
from plait import autograd, cpu, gluon, nd
from plait.gluon import nn
from plait.graph import program
from plait.kernels import backend
from plait.kernels.native import Table
from plait.kernels.reference import Call
from plait.kernels.traits import OwnKernel, PythonKernel
from reference_backend import reference

DEVICE = reference()
FIRST = [c for c in derived.CASES if c.values[1] is c.values[0].samples[0]]
SOME = [c for c in FIRST if not c.values[0].random]
DIFFERENTIABLE = [c for c in FIRST if samples.is_differentiable(c.values[0])]


@pytest.fixture
def records(monkeypatch):
    """The tests of the records, on the device."""
    monkeypatch.setattr(derived, "device", DEVICE)
    monkeypatch.setattr(derived, "DTYPES", ("float32", "int32"))
    monkeypatch.setattr(derived, "FLOATS", ("float32",))
    return derived


@pytest.mark.parametrize("op, case", SOME[::3])
def test_values(records, op, case, monkeypatch):
    runs, run = [], Call.run
    note = lambda call, *memory: runs.append(call.op) or run(call, *memory)
    monkeypatch.setattr(Call, "run", note)
    records.test_nd_equals_reference_and_inference(op, case)
    assert op in runs or op.has(OwnKernel) or op.has(PythonKernel), (
        "no kernel but the reference may run it"
    )


@pytest.mark.parametrize("op, case", DIFFERENTIABLE[::6])
def test_gradient(records, op, case):
    records.test_gradient(op, case)


@pytest.mark.parametrize("op, case", SOME[::12])
def test_graph(records, op, case):
    records.test_graph_equals_nd(op, case)


def test_the_backend_is_one_line():
    """Everything but its name is a default."""
    here, there = backend.of(DEVICE), backend.of(cpu())
    assert here is backend.of(reference(1)) is not there
    assert here.kernels.entries == here.kernels.layouts == {} and there.kernels.entries
    assert here.fusion is here.branches is None and not here.fused_dtypes and not here.compiles


def _net():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 3, padding=1, in_channels=3),
        nn.BatchNorm(in_channels=8),
        nn.Activation("relu"),
        nn.Conv2D(8, 1, in_channels=8),
        nn.Activation("sigmoid"),
        nn.Flatten(),
        nn.Dense(6, in_units=8 * 36, activation="tanh"),
        nn.LayerNorm(in_channels=6),
        nn.Dense(4, in_units=6),
    )
    return net


def _trained(device, arrays):
    """Losses and parameters of a few steps on a device, hybridized; and the names of operators in
    the programs."""
    x, y = (nd.array(a, ctx=device) for a in arrays)
    net = _net()
    net.initialize(mx.init.Xavier(rnd_type="gaussian"), ctx=cpu())
    rng = np.random.default_rng(5)
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.uniform(0.2, 0.6, p.shape)))
    net.collect_params().reset_ctx(device)
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(6):
        with autograd.record():
            total = loss(net(x), y)
        total.backward()
        trainer.step(x.shape[0])
        losses.append(total.asnumpy())
        mx.wait_compiled()  # the next step runs what is compiled
    return [*losses, *(p.data().asnumpy() for p in net.collect_params().values())]


def test_programs_are_not_fused_and_train_alike(monkeypatch):
    made, assemble = {DEVICE: [], cpu(): []}, program.assemble

    def seen(outputs, given, device, *rest):
        result = assemble(outputs, given, device, *rest)
        made[device] += [op.name for op in result.ops]
        return result

    monkeypatch.setattr(program, "assemble", seen)
    rng = np.random.default_rng(1)
    arrays = rng.normal(size=(5, 3, 6, 6)), rng.integers(0, 4, 5)
    got, want = (_trained(device, arrays) for device in (DEVICE, cpu()))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    fused = {"_fused", "_conv", "_dense", "_reorder", "_batch_norm_add_relu"}
    assert made[DEVICE] and not fused & set(made[DEVICE])
    assert fused & set(made[cpu()])


def test_arrays_go_to_and_from_other_devices(tmp_path):
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    there = nd.array(x, ctx=DEVICE)
    assert there.context == DEVICE and repr(there.context) == "reference(0)"
    assert (there + 1).context == DEVICE
    for back in (
        there.as_in_context(cpu()),
        there.copyto(cpu()),
        pickle.loads(pickle.dumps(there)),
    ):
        np.testing.assert_array_equal(back.asnumpy(), x)
    with pytest.raises(mx.MXNetError, match="all inputs must be on one device"):
        there + nd.array(x)
    nd.save(str(tmp_path / "x"), [there])
    (loaded,) = nd.load(str(tmp_path / "x"))
    np.testing.assert_array_equal(loaded.asnumpy(), x)
    assert there.__dlpack_device__() == (1, 0)
    np.from_dlpack(there)[0, 0] = 7.0
    assert there.asnumpy()[0, 0] == 7.0
    with DEVICE:
        assert nd.from_numpy(x.copy()).context == nd.ones((2,)).context == DEVICE
        doubled = mx.stream(lambda part: part * 2, x, rows=1)
    np.testing.assert_array_equal(doubled.asnumpy(), 2 * x)


def test_control_flow_runs():
    def total(device):
        x = nd.arange(6, ctx=device).reshape((3, 2))
        x.attach_grad()
        with autograd.record():
            _, (s,) = nd.contrib.foreach(
                lambda a, s: (a, [s[0] * 0.5 + nd.tanh(a)]), x, [nd.zeros((2,), ctx=device)]
            )
        s.backward()
        return s.asnumpy(), x.grad.asnumpy()

    for a, b in zip(total(DEVICE), total(cpu()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_the_first_entry_that_has_a_kernel_is_chosen():
    table = Table()
    op = derived.REGISTRY["relu"]
    assert not table.has(op) and table.choose(op, [], [], {}) is None
    derived_entry = table.native("relu", derived=True)(lambda *_: "derived")
    assert not table.has(op) and table.choose(op, [], [], {}) == "derived"
    assert table.choose(op, [], [], {}, derived=False) is None
    table.native("relu")(lambda *_: "written")
    assert table.has(op) and table.choose(op, [], [], {}, derived=False) == "written"
    assert table.entries["relu"][0] is derived_entry

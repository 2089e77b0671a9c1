"""mx.kv: sums over devices, updaters, compression, registered stores. Expected values are MXNet
1.9.1's."""

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.engine.error import MXNetError
from plait.training.kvstore import compression
from plait.training.module.progress import _stateful

TYPES = ("local", "device")


def ones(n=1, on=0):
    return nd.ones((2,), ctx=mx.cpu(on)) * n


def pulled(kv, key, n=1):
    outs = [nd.full((2,), -9.0, ctx=mx.cpu(i)) for i in range(n)]
    kv.pull(key, out=outs)
    return [o.asnumpy()[0] for o in outs]


@pytest.mark.parametrize("kind", TYPES)
class TestStores:
    def test_push_replaces_by_the_sum_and_pull_copies_to_all(self, kind):
        kv = mx.kv.create(kind)
        assert (kv.type, kv.rank, kv.num_workers) == (kind, 0, 1) and kv.is_capable("optimizer")
        kv.init(3, ones(2))
        assert pulled(kv, 3, 3) == [2, 2, 2]
        kv.push(3, [ones(on=i) for i in range(4)])
        assert pulled(kv, 3) == [4]
        kv.push(3, ones(8))
        assert pulled(kv, 3) == [8]

    def test_lists_of_keys(self, kind):
        kv = mx.kv.create(kind)
        kv.init(["a", "b"], [ones(5), ones(7)])
        kv.push(["a", "b", "a"], [[ones(), ones(on=1)], ones(), ones(9)])
        assert pulled(kv, "a") == [11] and pulled(kv, "b") == [1]

    def test_pushpull_and_broadcast(self, kind):
        kv = mx.kv.create(kind)
        outs = [ones(0), ones(0, on=1)]
        kv.broadcast(9, ones(4), out=outs)
        assert [o.asnumpy()[1] for o in outs] == [4, 4]
        values = [ones(i + 1, on=i) for i in range(3)]
        kv.pushpull(9, values)
        assert [v.asnumpy()[0] for v in values] == [6, 6, 6]
        kv.pushpull(9, [ones(1), ones(2, on=1)], out=outs)
        assert [o.asnumpy()[0] for o in outs] == [3, 3] and pulled(kv, 9) == [3]

    def test_updater_gets_key_sum_and_stored(self, kind):
        kv, calls = mx.kv.create(kind), []

        def update(key, gradient, weight):
            calls.append((key, gradient.asnumpy()[0], weight.asnumpy()[0]))
            weight += gradient * 2

        kv.init("w", ones())
        kv._set_updater(update)
        kv.push("w", [ones()] * 4)
        kv.push("w", ones())
        assert calls == [("w", 4, 1), ("w", 1, 9)] and pulled(kv, "w") == [11]

    def test_optimizer_and_its_states(self, kind, tmp_path):
        kv = mx.kv.create(kind)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
        kv.init([0, 1], [ones(), ones(2)])
        for _ in range(2):
            kv.push([0, 1], [[ones(), ones(on=1)], [ones(), ones(on=1)]])
        assert pulled(kv, 0)[0] == pytest.approx(0.42, rel=1e-6)
        kv.save_optimizer_states(str(tmp_path / "s"), dump_optimizer=True)
        other = mx.kv.create(kind)
        other.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
        other.init(0, ones(0.42))
        other.load_optimizer_states(str(tmp_path / "s"))
        for _ in range(2):
            other.push(0, [ones(), ones(on=1)])
        assert pulled(other, 0)[0] == pytest.approx(-0.8098, rel=1e-5)

    def test_errors(self, kind):
        kv = mx.kv.create(kind)
        kv.init(3, ones())
        with pytest.raises(MXNetError, match="duplicate init of key 3"):
            kv.init(3, ones())
        with pytest.raises(MXNetError, match="Mixed key types are not allowed"):
            kv.init("a", ones())
        with pytest.raises(AssertionError, match="inconsistent types of keys"):
            kv.push([3, "b"], [ones()] * 2)
        with pytest.raises(AssertionError, match="2 keys and 1"):
            kv.push([3, 4], [ones()])
        with pytest.raises(AssertionError, match="unexpected type for keys: <class 'float'>"):
            kv.push(5.5, ones())
        for act in (lambda: kv.push(4, ones()), lambda: pulled(kv, 4)):
            with pytest.raises(MXNetError, match="key 4 has not been inited"):
                act()
        with pytest.raises(MXNetError, match="must have the shape of the value, got .3,."):
            kv.pull(3, out=nd.zeros((3,)))
        with pytest.raises(AssertionError, match="there is no optimizer"):
            kv.save_optimizer_states("x")
        with pytest.raises(MXNetError, match="Expected row_sparse storage type"):
            kv.row_sparse_pull(3, out=ones(), row_ids=nd.array([0]))
        with pytest.raises(ValueError, match="Unknown capability"):
            kv.is_capable("fly")


def test_create(monkeypatch):
    assert mx.kv.create("LOCAL").type == "local"
    monkeypatch.setattr("plait.training.kvstore.nccl.num_gpus", lambda: 0)
    with pytest.raises(MXNetError, match="this machine has no GPU"):
        mx.kv.create("nccl")
    with pytest.raises(MXNetError, match="'dist_async': this job has no servers"):
        mx.kv.create("dist_async")
    with pytest.raises(TypeError, match="name must be a string"):
        mx.kv.create(3)
    with pytest.raises(MXNetError, match="this process is not a server"):
        mx.kv.KVStoreServer(mx.kv.create()).run()


def test_registered_store(monkeypatch):
    monkeypatch.setattr(mx.kv.KVStoreBase, "kv_registry", {})

    @mx.kv.KVStoreBase.register
    class Mine(mx.kv.KVStoreBase):
        pass

    kv = mx.kv.create("mine")
    assert isinstance(kv, Mine)
    with pytest.raises(NotImplementedError, match="Mine does not define pushpull"):
        kv.pushpull(0, ones())
    with pytest.raises(NotImplementedError, match="Mine does not define set_gradient_compression"):
        kv.set_gradient_compression({"type": "2bit"})
    with pytest.warns(UserWarning, match="overriding existing kvstore"):
        mx.kv.KVStoreBase.register(Mine)


def test_store_without_visible_optimizer_cannot_be_checkpointed():
    """It was AttributeError: '_updater'."""

    @mx.kv.KVStoreBase.register
    class Hides(mx.kv.KVStoreBase):
        is_capable = staticmethod(lambda capability: True)
        type = "hides"

        def set_optimizer(self, optimizer):
            self.mine = mx.optimizer.get_updater(optimizer)

        def init(self, key, value):
            pass

        def broadcast(self, key, value, out, priority=0):
            for o in out if isinstance(out, list) else [out]:
                o[:] = value

        push = pull = pushpull = broadcast

    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore="hides", update_on_kvstore=True)
    head = mx.sym.LinearRegressionOutput(mx.sym.var("data"), mx.sym.var("label"))
    module = mx.mod.Module(head, label_names=["label"])
    module._kvstore, module._update_on_kvstore, module._optimizer = Hides(), True, None
    for state in (trainer.state_dict, lambda: _stateful(module)):
        with pytest.raises(mx.MXNetError, match="Hides updates the weights and has no '_updater'"):
            state()


def test_teststore():
    kv = mx.kv.create("teststore")
    assert kv.type == "teststore" and not kv.is_capable("optimizer")
    out = [ones(0), ones(0, on=1)]
    kv.pushpull(1, [ones(), ones(on=1)], out=out)
    assert [o.asnumpy()[0] for o in out] == [2, 2]
    kv.broadcast(1, ones(7), out)
    assert [o.asnumpy()[0] for o in out] == [7, 7]


class TestCompression:
    def test_what_is_cut_off_comes_later(self):
        kv = mx.kv.create("device")
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        kv.init(1, nd.zeros((4,)))
        gradients = [nd.array([0.3, 0.6, -0.7, 1.2], ctx=mx.cpu(i)) for i in range(2)]
        out = nd.zeros((4,))
        seen = []
        for _ in range(4):
            kv.push(1, gradients)
            kv.pull(1, out=out)
            seen.append(out.asnumpy().tolist())
        assert seen == [[0, 1, -1, 1], [1, 1, -1, 1]] * 2
        kv.push(1, gradients[0])
        kv.pull(1, out=out)
        assert out.asnumpy().tolist() == [0.5, 0.5, -0.5, 0.5]

    def test_bits(self):
        residual = np.zeros(18, np.float32)
        gradient = np.zeros(18, np.float32)
        gradient[[0, 1, 5, 17]] = [0.6, -0.6, 2.0, 0.5]
        packed = compression.quantize(gradient, residual, 0.5)
        assert packed.view(np.uint8).tolist() == [0b11100000, 0b00110000, 0, 0, 0b00110000, 0, 0, 0]
        np.testing.assert_allclose(residual[[0, 1, 5, 17]], [0.1, -0.1, 1.5, 0], atol=1e-7)
        back = compression.dequantize(packed, 18, 0.5)
        assert back[[0, 1, 5, 17]].tolist() == [0.5, -0.5, 0.5, 0.5] and back.size == 18

    def test_errors(self):
        with pytest.raises(MXNetError, match="not supported for this type of kvstore"):
            mx.kv.create("local").set_gradient_compression({"type": "2bit"})
        kv = mx.kv.create("device")
        for params, message in (
            ({"type": "1bit"}, "Unknown type for gradient compression 1bit"),
            ({"type": "2bit", "threshold": 0}, "threshold must be greater than 0"),
            ("2bit", "unexpected type for param_dict"),
        ):
            with pytest.raises(MXNetError, match=message):
                kv.set_gradient_compression(params)
        kv.set_gradient_compression({"type": "2bit"})
        kv.init(0, nd.zeros((2,), dtype="float64"))
        with pytest.raises(MXNetError, match="needs float32 gradients, got float64"):
            kv.push(0, nd.zeros((2,), dtype="float64"))


UNKNOWN = [
    "p3",
    "dist_sinc",
    "loca",
    "device2",
    "",
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_store_names_raise_everywhere(name):
    """One that worked alone in its place would train each process by itself."""
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    module = mx.mod.Module(mx.sym.MakeLoss(data), label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params()
    for call in (
        lambda: mx.kv.create(name),
        lambda: mx.kv.KVStore(name),
        lambda: mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=name),
        lambda: module.init_optimizer(kvstore=name),
    ):
        with pytest.raises(ValueError, match="fix: one of local,.* teststore"):
            call()
    assert net.weight._trainer is None


def test_without_servers_nothing_trains_asynchronously():
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    for call in (
        lambda: mx.kv.create("dist_async"),
        lambda: mx.gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_async"),
    ):
        with pytest.raises(ValueError, match="'dist_async': this job has no servers"):
            call()
    assert net.weight._trainer is None


@pytest.mark.parametrize("name", ["dist_sync", "dist_async", "nccl"])
def test_a_store_of_one_process_does_not_take_the_name_of_another(name):
    with pytest.raises(ValueError, match=f"fix: mx.kv.create.'{name}'"):
        mx.kv.KVStore(name)


@pytest.mark.parametrize("name", ["dist_sync", "dist_device_sync", "dist"])
def test_a_distributed_store_works_in_one_process(name):
    kv = mx.kv.create(name)
    assert (kv.type, kv.rank, kv.num_workers) == (name, 0, 1)
    kv.init("w", nd.ones((2,)))
    x = [nd.ones((2,)), nd.ones((2,)) * 2]
    kv.pushpull("w", x)
    assert x[0].asnumpy().tolist() == x[1].asnumpy().tolist() == [3, 3]
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5))
    kv.push("w", x[0])
    assert pulled(kv, "w") == [1.5]
    kv._barrier()


@pytest.mark.parametrize("name", ["local_allreduce_cpu", "LOCAL", "device", "TestStore"])
def test_names_of_stores(name):
    assert mx.kv.create(name).num_workers == 1
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    assert mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=name)

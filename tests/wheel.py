"""What a wheel must do where there is no compiler, run by .ci/wheels with the Python of a fresh
environment: trains, hybridizes, saves, loads and draws a network, and prints what is installed."""

import shutil
import sysconfig
import tempfile
import time
from pathlib import Path

assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "a compiler is on the path"
start = time.perf_counter()
import plait as mx  # noqa: E402

seconds = time.perf_counter() - start
from plait import autograd, gluon, nd  # noqa: E402
from plait.gluon import nn  # noqa: E402

installed = Path(mx.__file__).parent
site = Path(sysconfig.get_path("purelib"))
assert installed.parent == site, installed

net = nn.HybridSequential()
net.add(nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(), nn.Dense(4))
net.initialize(mx.init.Xavier())
mx.seed_all(1)
x = nd.random.normal(shape=(16, 1, 8, 8))
labels = nd.arange(16) % 4
eager = net(x)
net.hybridize()
assert nd.abs(eager - net(x)).max().asscalar() < 1e-5
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
losses = []
for _ in range(40):
    with autograd.record():
        loss = loss_of(net(x), labels)
    loss.backward()
    trainer.step(16)
    losses.append(loss.mean().asscalar())
assert losses[-1] < losses[0] / 3, losses

with tempfile.TemporaryDirectory() as folder:
    net.export(f"{folder}/net")
    again = gluon.SymbolBlock.imports(
        f"{folder}/net-symbol.json", ["data"], f"{folder}/net-0000.params"
    )
    assert nd.abs(again(x) - net(x)).max().asscalar() < 1e-5
    assert "Convolution" in mx.viz.plot_network(net, shape={"data": x.shape}).source

sizes = {
    p.name: sum(f.stat().st_size for f in p.rglob("*") if f.is_file() and f.suffix != ".pyc")
    for p in site.iterdir()
    if p.is_dir() and not p.name.startswith(("pip", "setuptools", "_distutils"))
}
print(f"plait {mx.__version__} from {installed}, imported in {seconds:.2f} s")
mb = {name: round(size / 1e6, 1) for name, size in sizes.items()}
print(f"MB: {mb['plait']} plait, {sum(mb.values()):.1f} with all that it needs")

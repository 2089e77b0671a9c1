"""`python -m plait bench`: the workloads of the speed table, side by side with torch when it is
installed.

Every measurement runs in a process of its own; plait and torch take turns, and the ratio is formed
round by round, because machines drift. `--torch PYTHON` names another environment's interpreter
that has torch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

WORKLOADS: dict[
    str, tuple[Callable, Callable | None]
] = {}  # name -> (plait's, torch's): make() -> (step, sync)


def workload(name: str, torch: Callable | None = None):
    """Registers a workload: a function that returns (step, calls per step)."""

    def add(make):
        WORKLOADS[name] = (make, torch)
        return make

    return add


# ---- torch's side --------------------------------------------------------------------------------


def torch_add(n):
    def make():
        import torch

        a, b = torch.ones(n, n), torch.ones(n, n)
        return lambda: [a + b for _ in range(100)], 100

    return make


def torch_chain():
    import torch

    x = torch.ones(32, 32)

    def step():
        y = x
        for _ in range(50):
            y = torch.relu(y * 1.01 + 0.1)
        return y

    torch.set_grad_enabled(False)
    return step, 1


def torch_gelu():
    import torch

    x, y = torch.randn(1 << 22), torch.randn(1 << 22)

    def step():
        z = x * y + x
        return 0.5 * z * (1 + torch.tanh(0.79788456 * (z + 0.044715 * z * z * z)))

    return step, 1


def _torch_training(net, x, y):
    import torch

    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        out = net(x)
        torch.nn.functional.cross_entropy(out.flatten(0, -2), y.flatten()).backward()
        optimizer.step()

    return step, 1


def torch_mlp():
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return _torch_training(net, torch.rand(64, 784), torch.randint(0, 10, (64,)))


def torch_lenet():
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )
    return _torch_training(net, torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,)))


def torch_lstm():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.out = (
                nn.Embedding(5000, 256),
                nn.LSTM(256, 256, 2),
                nn.Linear(256, 5000),
            )

        def forward(self, x):
            return self.out(self.lstm(self.embedding(x))[0])

    return _torch_training(
        Model(), torch.randint(0, 5000, (35, 20)), torch.randint(0, 5000, (35, 20))
    )


# ---- plait's side --------------------------------------------------------------------------------


def _add(n):
    def make():
        from ..ndarray import functions as nd

        a, b = nd.ones((n, n)), nd.ones((n, n))
        return lambda: [a + b for _ in range(100)], 100

    return make


workload("eager_add_4", torch_add(4))(_add(4))
workload("eager_add_64", torch_add(64))(_add(64))


def _chain(hybridize):
    def make():
        from ..ndarray import functions as nd
        from .hybrid import HybridBlock

        class Chain(HybridBlock):
            def hybrid_forward(self, F, x):
                for _ in range(50):
                    x = F.relu(x * 1.01 + 0.1)
                return x

        net = Chain()
        net.hybridize(hybridize)
        x = nd.ones((32, 32))
        return lambda: net(x), 1

    return make


workload("chain_eager", torch_chain)(_chain(False))
workload("chain_hybrid", torch_chain)(_chain(True))


@workload("gelu_4m", torch_gelu)
def _gelu():
    from ..ndarray import functions as nd
    from .hybrid import HybridBlock

    class Gelu(HybridBlock):
        def hybrid_forward(self, F, x, y):
            z = x * y + x
            return 0.5 * z * (1 + F.tanh(0.79788456 * (z + 0.044715 * z * z * z)))

    net = Gelu()
    net.hybridize()
    x, y = (nd.array(np.random.randn(1 << 22)) for _ in range(2))
    return lambda: net(x, y), 1


def _training(make_net, shape, classes, hybridize, tokens=False):
    def make():
        from ..ndarray import autograd
        from ..ndarray import functions as nd
        from .initializer import Xavier
        from .loss import SoftmaxCrossEntropyLoss
        from .trainer import Trainer

        net, loss_of = make_net(), SoftmaxCrossEntropyLoss()
        net.initialize(Xavier())
        net.hybridize(hybridize)
        loss_of.hybridize(hybridize)
        x = nd.array(np.random.randint(0, classes, shape) if tokens else np.random.rand(*shape))
        y = nd.array(np.random.randint(0, classes, shape if tokens else shape[:1]))
        trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9})

        def step():
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(shape[0])

        return step, 1

    return make


def _mlp():
    from .training import mlp

    return mlp()


def _lenet():
    from .training import lenet

    return lenet(28)


def _language_model():
    from . import nn, rnn
    from .hybrid import HybridBlock

    class Model(HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.embedding, self.lstm = (
                    nn.Embedding(5000, 256),
                    rnn.LSTM(256, 2, input_size=256),
                )
                self.out = nn.Dense(5000, flatten=False, in_units=256)

        def hybrid_forward(self, F, x):
            return self.out(self.lstm(self.embedding(x)))

    return Model()


workload("mlp_train_eager", torch_mlp)(_training(_mlp, (64, 784), 10, False))
workload("mlp_train_hybrid", torch_mlp)(_training(_mlp, (64, 784), 10, True))
workload("lenet_train_hybrid", torch_lenet)(_training(_lenet, (64, 1, 28, 28), 10, True))
workload("lstm_train_hybrid", torch_lstm)(
    _training(_language_model, (35, 20), 5000, True, tokens=True)
)


def _zoo(name):
    def make():
        from ..ndarray import functions as nd
        from .initializer import Xavier
        from .model_zoo import vision

        net = vision.get_model(name)
        net.initialize(Xavier())
        net.hybridize(static_alloc=True, static_shape=True)
        x = nd.array(np.random.rand(1, 3, 224, 224))
        return lambda: net(x), 1

    return make


for _name in ("resnet18_v1", "resnet50_v1", "mobilenetv2_1.0"):
    workload(f"{_name}_infer_b1")(_zoo(_name))


@workload("push_3_vars")
def _push():
    from ..engine import Var, ffi, lib, waitall

    variables = [Var() for _ in range(3)]
    handles = [v._handle for v in variables]
    reads, writes = ffi.new("uintptr_t[]", handles[:2]), ffi.new("uintptr_t[]", handles[2:])
    function = ffi.addressof(lib, "pl_noop")

    def step():
        for _ in range(1000):
            lib.pl_push(
                function,
                ffi.NULL,
                ffi.NULL,
                reads,
                2,
                writes,
                1,
                lib.PL_LANE_CPU,
                0,
                0,
                ffi.NULL,
                -1,
            )
        assert variables

    assert waitall
    return step, 1000


# ---- measuring -----------------------------------------------------------------------------------


def measure(name: str, framework: str, seconds: float) -> dict:
    """Seconds per call (median over repeats) and peak resident memory (MiB) of one workload in this
    process."""
    make = WORKLOADS[name][framework == "torch"]
    step, calls = make()
    if framework == "plait":
        from ..engine import waitall as sync
    else:

        def sync():
            pass

    def timed(n):
        start = time.perf_counter()
        for _ in range(n):
            step()
        sync()
        return (time.perf_counter() - start) / n

    timed(5)
    n = max(1, int(seconds / 10 / max(timed(1), 1e-7)))
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append(timed(n))
    return {
        "seconds": statistics.median(times) / calls,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _in_process(python: str, name: str, framework: str, seconds: float) -> dict | None:
    command = (
        [python, "-m", f"{__package__}.benchmark", framework, name, str(seconds)]
        if framework == "plait"
        else [python, "-P", __file__, framework, name, str(seconds)]
    )
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        print(
            f"{name}: {framework} failed: {(result.stderr.strip().splitlines() or ['?'])[-1]}",
            file=sys.stderr,
        )
        return None
    return json.loads(result.stdout.strip().splitlines()[-1])


def _figures(rounds: list[dict]) -> str:
    """Columns of the table: median time (ms) and peak memory (MiB)."""
    milliseconds = 1e3 * statistics.median(r["seconds"] for r in rounds)
    return f"{milliseconds:12.4f}{rounds[-1]['peak_mib']:7.0f}"


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="plait bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(WORKLOADS)}"
    )
    p.add_argument(
        "--torch", default=sys.executable, metavar="PYTHON", help="an interpreter that has torch"
    )
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=2.0, help="time of one measurement")
    args = p.parse_args(argv)
    unknown = set(args.workloads) - set(WORKLOADS)
    if unknown:
        p.error(f"unknown workloads {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    beside = has_torch(args.torch)
    print(
        f"{'workload':24}{'plait ms':>12}{'MiB':>7}"
        + (
            f"{'torch ms':>12}{'MiB':>7}{'torch/plait':>13}"
            if beside
            else "   (torch is not installed)"
        )
    )
    for name in args.workloads or WORKLOADS:
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(_in_process(sys.executable, name, "plait", args.seconds))
            if beside and WORKLOADS[name][1]:
                theirs.append(_in_process(args.torch, name, "torch", args.seconds))
        if None in ours:
            continue
        line = f"{name:24}{_figures(ours)}"
        if theirs and None not in theirs:
            ratio = statistics.median(t["seconds"] / o["seconds"] for t, o in zip(theirs, ours))
            line += f"{_figures(theirs)}{ratio:13.2f}"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[2], sys.argv[1], float(sys.argv[3]))))

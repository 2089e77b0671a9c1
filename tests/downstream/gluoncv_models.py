"""GluonCV's classifiers on plait: build, run, hybridize, export, load. Run by make downstream."""

import sys
import tempfile
import time
import traceback
from pathlib import Path

import mxnet as mx
import numpy as np

sys.modules["torch"] = None  # GluonCV refuses to be imported beside a torch of today
from gluoncv import model_zoo  # noqa: E402

MODELS = {  # name -> size of its pictures
    "resnet18_v1": 224,
    "resnet18_v1b": 224,
    "resnet18_v2": 224,
    "resnet50_v1s": 224,
    "resnext50_32x4d": 224,
    "se_resnext50_32x4d": 224,
    "resnest14": 224,
    "mobilenet1.0": 224,
    "mobilenetv2_1.0": 224,
    "mobilenetv3_small": 224,
    "densenet121": 224,
    "vgg11": 224,
    "squeezenet1.0": 224,
    "alexnet": 224,
    "inceptionv3": 299,
    "xception": 299,
    "googlenet": 224,
    "darknet53": 224,
    "hrnet_w18_small_v1_c": 224,
    "residualattentionnet56": 224,
    "senet_154": 224,
    "cifar_resnet20_v1": 32,
    "cifar_wideresnet16_10": 32,
}


def check(name: str, size: int) -> str:
    """Eager, hybridized and exported outputs must agree. Returns what was found."""
    mx.random.seed(1)
    net = model_zoo.get_model(name, pretrained=False)
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(shape=(1, 3, size, size))
    eager = net(x).asnumpy()
    net.hybridize()
    graph = net(x).asnumpy()
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder, "net"))
        net.export(prefix)
        loaded = mx.gluon.SymbolBlock.imports(
            prefix + "-symbol.json", ["data"], prefix + "-0000.params"
        )
        again = loaded(x).asnumpy()
    scale = np.abs(eager).max()
    worst = max(np.abs(graph - eager).max(), np.abs(again - eager).max()) / scale
    assert np.isfinite(eager).all() and worst < 1e-4, f"outputs differ by {worst:.1e}"
    return f"{eager.shape}, outputs agree to {worst:.0e}"


def main(names: list[str]) -> int:
    failed = []
    for name in names or MODELS:
        start = time.perf_counter()
        try:
            print(f"{name}: {check(name, MODELS[name])} ({time.perf_counter() - start:.1f} s)")
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print(f"gluoncv: failed: {', '.join(failed)}" if failed else "gluoncv: all well")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

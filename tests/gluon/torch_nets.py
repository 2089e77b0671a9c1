"""Two networks as torch's users have them, in plait: where the layers are, and weights that anyone
can compute."""

import zlib

import numpy as np
from plait import gluon
from plait.gluon import nn
from plait.gluon.model_zoo import vision


def weights(shapes):
    """Arrays by name for shapes by name, the same everywhere."""
    found = {}
    for name, shape in shapes.items():
        rng = np.random.RandomState(zlib.crc32(name.encode()))
        if name.endswith("num_batches_tracked"):
            found[name] = np.array(7, np.int64)
        elif name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
            found[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            width = (3 / max(1, np.prod(shape[1:]))) ** 0.5
            found[name] = rng.uniform(-width, width, shape).astype(np.float32)
    return found


def pixels(size=32):
    return np.random.RandomState(3).uniform(-1, 1, (2, 3, size, size)).astype(np.float32)


def words(vocabulary, length=7):
    return np.random.RandomState(4).randint(0, vocabulary, (2, length))


# ---- ResNet-18: torchvision's names --------------------------------------------------------------

PARTS = {"conv1": "body.0", "bn1": "body.1", "conv2": "body.3", "bn2": "body.4"}
RESNET = {
    "conv1": "features.0",
    "bn1": "features.1",
    r"layer(\d)\.(\d)\.(conv\d|bn\d)": lambda m: f"features.{int(m[1]) + 3}.{m[2]}.{PARTS[m[3]]}",
    r"layer(\d)\.(\d)\.downsample\.(\d)": lambda m: (
        f"features.{int(m[1]) + 3}.{m[2]}.downsample.{m[3]}"
    ),
    "fc": "output",
}


def resnet():
    return vision.resnet18_v1()


def resnet_shapes(classes=1000):
    """Of torchvision's state dict."""
    found = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    n_in = 64
    for i, n in enumerate((64, 128, 256, 512), 1):
        for j in range(2):
            at = f"layer{i}.{j}"
            found[f"{at}.conv1.weight"] = (n, n_in, 3, 3)
            found |= norm(f"{at}.bn1", n)
            found[f"{at}.conv2.weight"] = (n, n, 3, 3)
            found |= norm(f"{at}.bn2", n)
            if n_in != n:
                found[f"{at}.downsample.0.weight"] = (n, n_in, 1, 1)
                found |= norm(f"{at}.downsample.1", n)
            n_in = n
    return found | {"fc.weight": (classes, 512), "fc.bias": (classes,)}


def norm(at, n):
    kinds = ("weight", "bias", "running_mean", "running_var")
    return {f"{at}.{kind}": (n,) for kind in kinds} | {f"{at}.num_batches_tracked": ()}


# ---- a transformer: the names of torch.nn.TransformerEncoder -------------------------------------

TRANSFORMER = {
    "words": "words",
    r"encoder\.layers\.(\d+)\.self_attn\.in_proj": tuple(
        rf"layers.\1.{name}" for name in ("query", "key", "value")
    ),
    r"encoder\.layers\.(\d+)\.self_attn\.out_proj": r"layers.\1.out",
    r"encoder\.layers\.(\d+)\.(.*)": r"layers.\1.\2",
}


class Layer(gluon.HybridBlock):
    def __init__(self, width, heads):
        super().__init__()
        self._heads = heads
        with self.name_scope():
            self.query, self.key, self.value, self.out = [
                nn.Dense(width, flatten=False, in_units=width) for _ in range(4)
            ]
            self.linear1 = nn.Dense(4 * width, flatten=False, in_units=width)
            self.linear2 = nn.Dense(width, flatten=False, in_units=4 * width)
            self.norm1 = nn.LayerNorm(in_channels=width)
            self.norm2 = nn.LayerNorm(in_channels=width)

    def hybrid_forward(self, F, x):
        def heads(a):
            a = F.reshape(a, shape=(0, 0, self._heads, -1))
            return F.reshape(F.transpose(a, axes=(0, 2, 1, 3)), shape=(-3, 0, 0))

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = F.batch_dot(F.contrib.div_sqrt_dim(query), key, transpose_b=True)
        mixed = F.batch_dot(F.softmax(scores, axis=-1), value)
        mixed = F.reshape(mixed, shape=(-4, -1, self._heads, 0, 0))
        mixed = F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.linear2(F.LeakyReLU(self.linear1(x), act_type="gelu")))


class Transformer(gluon.HybridBlock):
    def __init__(self, vocabulary, width, n_layers, heads):
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, width)
            self.layers = nn.HybridSequential()
            self.layers.add(*[Layer(width, heads) for _ in range(n_layers)])

    def hybrid_forward(self, F, x):
        return self.layers(self.words(x))


def transformer_shapes(vocabulary, width, n_layers):
    """Of torch's state dict."""
    found = {"words.weight": (vocabulary, width)}
    for i in range(n_layers):
        at = f"encoder.layers.{i}"
        for name, n_out, n_in in (
            ("self_attn.in_proj_", 3 * width, width),
            ("self_attn.out_proj.", width, width),
            ("linear1.", 4 * width, width),
            ("linear2.", width, 4 * width),
        ):
            found[f"{at}.{name}weight"] = (n_out, n_in)
            found[f"{at}.{name}bias"] = (n_out,)
        for name in ("norm1", "norm2"):
            found |= {f"{at}.{name}.weight": (width,), f"{at}.{name}.bias": (width,)}
    return found

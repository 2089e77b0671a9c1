"""The workloads on the MXNet API: the same lines run on plait and on Apache MXNet.

usage: with_mxnet_api.py WORKLOAD SECONDS MODULE
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
from timing import time_workload

mx = importlib.import_module(sys.argv[3])
nd, gluon, autograd, nn = mx.nd, mx.gluon, mx.autograd, mx.gluon.nn
Block: Any = gluon.Block  # of the package under test
HybridBlock: Any = gluon.HybridBlock
rng = np.random.RandomState(0)


class Chain(HybridBlock):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for _ in range(50):
            x = F.relu(x * 1.01 + 0.1)
        return x


class Gelu(HybridBlock):
    def hybrid_forward(self, F: Any, x: Any, y: Any) -> Any:
        z = x * y + x
        return 0.5 * z * (1 + F.tanh(0.79788456 * (z + 0.044715 * z * z * z)))


class LanguageModel(HybridBlock):
    def __init__(self, layer: Any, vocabulary: int = 5000, hidden: int = 256):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, hidden)
            self.layer = layer(hidden, 2, input_size=hidden)
            self.out = nn.Dense(vocabulary, flatten=False, in_units=hidden)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.out(self.layer(self.embedding(x)))


class EncoderLayer(HybridBlock):
    def __init__(self, width: Any, n_heads: Any):
        super().__init__()
        self.n_heads, self.scale = n_heads, (width / n_heads) ** -0.5
        with self.name_scope():
            self.qkv = nn.Dense(3 * width, flatten=False, in_units=width)
            self.join = nn.Dense(width, flatten=False, in_units=width)
            self.wide = nn.Dense(4 * width, flatten=False, in_units=width)
            self.narrow = nn.Dense(width, flatten=False, in_units=4 * width)
            self.norm_1, self.norm_2 = (nn.LayerNorm(in_channels=width) for _ in range(2))
            self.act = nn.GELU()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        def heads(t):  # (batch, length, width) -> (batch * heads, length, width / heads)
            t = F.reshape(t, shape=(0, 0, self.n_heads, -1))
            return F.reshape(F.transpose(t, axes=(0, 2, 1, 3)), shape=(-3, 0, 0))

        q, k, v = (heads(t) for t in F.split(self.qkv(x), 3, axis=-1))
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale, axis=-1)
        y = F.reshape(F.batch_dot(weights, v), shape=(-4, -1, self.n_heads, 0, 0))
        y = F.reshape(F.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = self.norm_1(x + self.join(y))
        return self.norm_2(x + self.narrow(self.act(self.wide(x))))


class Transformer(HybridBlock):
    def __init__(self, vocabulary: int = 5000, width: int = 256, n_layers: int = 4):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, width)
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                for _ in range(n_layers):
                    self.body.add(EncoderLayer(width, 4))
            self.out = nn.Dense(vocabulary, flatten=False, in_units=width)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.out(self.body(self.embedding(x)))


def mlp() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(10))
    return net


def lenet() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2))
    net.add(nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Flatten())
    net.add(nn.Dense(500, activation="relu"), nn.Dense(10))
    return net


def zoo(name: str) -> Any:
    return lambda: gluon.model_zoo.vision.get_model(name, classes=1000)


def images(*shape: Any) -> Any:
    return lambda: nd.array(rng.rand(*shape).astype("float32"))


def tokens(*shape: Any) -> Any:
    return lambda: nd.array(rng.randint(0, 5000, shape).astype("float32"))


def ready(make: Any, hybrid: bool = True) -> Any:
    net = make()
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize(static_alloc=True, static_shape=True)
    return net


def add(n: Any) -> Any:
    def make():
        a, b = nd.ones((n, n)), nd.ones((n, n))
        return lambda: [a + b for _ in range(100)], 100

    return make


def forward(make_net: Any, data: Any, hybrid: bool = True) -> Any:
    def make():
        net, x = ready(make_net, hybrid), data()
        return lambda: net(x)

    return make


def gelu() -> Any:
    net = ready(Gelu)
    x, y = images(1 << 22)() - 0.5, images(1 << 22)() - 0.5
    return lambda: net(x, y)


def training(
    make_net: Any, data: Any, labels: Any, hybrid: bool = True, optimizer: str = "sgd"
) -> Any:
    def make():
        net, x, y = ready(make_net, hybrid), data(), labels()
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        if hybrid:
            loss_of.hybridize()
        settings = {"learning_rate": 0.01}
        if optimizer == "sgd":
            settings["momentum"] = 0.9
        trainer = gluon.Trainer(net.collect_params(), optimizer, settings)

        def step():
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(x.shape[0])

        return step

    return make


def record_iterator() -> Any:
    """A batch of cropped, mirrored and normalised photographs from a record file."""
    import photographs as p

    folder, paths = p.make()
    prefix = f"{folder.name}/images"
    record = mx.recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "w")
    for i, path in enumerate(paths):
        with open(path, "rb") as file:
            header = mx.recordio.IRHeader(0, float(i % 2), i, 0)
            record.write_idx(i, mx.recordio.pack(header, file.read()))
    record.close()
    numbers: dict[str, float] = {}
    for colour, mean, std in zip("rgb", p.MEAN, p.STD):
        numbers |= {f"mean_{colour}": 255 * mean, f"std_{colour}": 255 * std}
    found = mx.io.ImageRecordIter(
        path_imgrec=f"{prefix}.rec",
        path_imgidx=f"{prefix}.idx",
        data_shape=(3, p.CROP, p.CROP),
        batch_size=p.BATCH,
        shuffle=True,
        rand_crop=True,
        rand_mirror=True,
        preprocess_threads=2,
        **numbers,
    )

    def epoch():
        found.reset()
        return found

    batches = p.forever(epoch)
    return lambda: (folder, next(batches).data[0].wait_to_read())


class RandomCrop(Block):
    def __init__(self, edge: Any):
        super().__init__()
        self.edge = edge

    def forward(self, x: Any) -> Any:
        return mx.image.random_crop(x, (self.edge, self.edge))[0]


def image_loader(thread_pool: Any) -> Any:
    """The same from a folder through a DataLoader with two workers."""

    def make():
        import photographs as p

        folder, _ = p.make()
        vision = gluon.data.vision
        steps = vision.transforms.Compose(
            [
                RandomCrop(p.CROP),
                vision.transforms.RandomFlipLeftRight(),
                vision.transforms.ToTensor(),
                vision.transforms.Normalize(p.MEAN, p.STD),
            ]
        )
        data = vision.ImageFolderDataset(folder.name).transform_first(steps)
        loader = gluon.data.DataLoader(
            data, p.BATCH, shuffle=True, num_workers=2, thread_pool=thread_pool
        )
        batches = p.forever(lambda: iter(loader))
        return lambda: (folder, next(batches)[0].wait_to_read())

    return make


def classes(n: Any, batch: Any) -> Any:
    return lambda: nd.array(rng.randint(0, n, batch).astype("float32"))


WORKLOADS = {
    "eager_add_4": add(4),
    "eager_add_64": add(64),
    "chain_eager": forward(Chain, lambda: nd.ones((32, 32)), hybrid=False),
    "chain_hybrid": forward(Chain, lambda: nd.ones((32, 32))),
    "gelu_4m": gelu,
    "mlp_train_eager": training(mlp, images(64, 784), classes(10, 64), hybrid=False),
    "mlp_train_hybrid": training(mlp, images(64, 784), classes(10, 64)),
    "lenet_train": training(lenet, images(64, 1, 28, 28), classes(10, 64)),
    "resnet18_infer_b1": forward(zoo("resnet18_v1"), images(1, 3, 224, 224)),
    "resnet50_infer_b1": forward(zoo("resnet50_v1"), images(1, 3, 224, 224)),
    "mobilenetv2_infer_b1": forward(zoo("mobilenetv2_1.0"), images(1, 3, 224, 224)),
    "resnet18_infer_b5": forward(zoo("resnet18_v1"), images(5, 3, 200, 216)),
    "resnet18_train_b8": training(zoo("resnet18_v1"), images(8, 3, 224, 224), classes(1000, 8)),
    "lstm_train": training(lambda: LanguageModel(gluon.rnn.LSTM), tokens(35, 20), tokens(35, 20)),
    "gru_train": training(lambda: LanguageModel(gluon.rnn.GRU), tokens(23, 13), tokens(23, 13)),
    "transformer_infer": forward(Transformer, tokens(8, 128)),
    "transformer_infer_odd": forward(Transformer, tokens(3, 77)),
    "lstm_infer": forward(lambda: LanguageModel(gluon.rnn.LSTM), tokens(35, 20)),
    "mlp_infer": forward(mlp, images(64, 784)),
    "transformer_train": training(Transformer, tokens(8, 128), tokens(8, 128), optimizer="adam"),
    "images_record_iter": record_iterator,
    "images_loader": image_loader(thread_pool=False),
    "images_loader_threads": image_loader(thread_pool=True),
}
if __name__ == "__main__":
    time_workload(WORKLOADS, nd.waitall, getattr(mx, "wait_compiled", nd.waitall))

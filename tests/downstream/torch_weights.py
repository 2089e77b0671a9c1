"""Weights of torch in plait: a ResNet-18 and a transformer of BERT's size give equal outputs.
Prints those in tests/gluon/test_torch_names.py. Run by make downstream."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from plait import interop, nd
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "gluon"))
import torch_nets as nets  # noqa: E402


class Block(nn.Module):
    def __init__(self, n_in, n, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n, 3, stride, 1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n)
        self.downsample = None
        if n_in != n:
            conv = nn.Conv2d(n_in, n, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(n))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    """torchvision's resnet18."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        n_in = 64
        for i, n in enumerate((64, 128, 256, 512), 1):
            layer = nn.Sequential(Block(n_in, n, 1 if i == 1 else 2), Block(n, n, 1))
            setattr(self, f"layer{i}", layer)
            n_in = n
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, n_layers, heads):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(self.words(x))


def compare(what, theirs, ours, shapes, table, data):
    assert {k: tuple(v.shape) for k, v in theirs.state_dict().items()} == shapes
    values = {k: torch.from_numpy(v) for k, v in nets.weights(shapes).items()}
    theirs.load_state_dict(values)
    theirs.eval()
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(data)).numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/weights.safetensors"
        save_file(theirs.state_dict(), path)
        ours.load_dict(interop.torch_names(ours, nd.load(path), table))
    ours.hybridize()
    got = ours(nd.array(data)).asnumpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    print(what, np.round(wanted.reshape(2, -1)[:, :4].astype(float), 5).tolist())


compare("ResNet-18", ResNet(), nets.resnet(), nets.resnet_shapes(), nets.RESNET, nets.pixels())
for vocabulary, width, n_layers, heads in ((50, 32, 2, 4), (30522, 768, 12, 12)):
    compare(
        f"transformer of {n_layers} layers",
        Transformer(vocabulary, width, n_layers, heads),
        nets.Transformer(vocabulary, width, n_layers, heads),
        nets.transformer_shapes(vocabulary, width, n_layers),
        nets.TRANSFORMER,
        nets.words(vocabulary),
    )

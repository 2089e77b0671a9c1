"""Small networks whose graphs choose the kernels that no sample of a record calls: fused groups,
blocked channels, updates of optimizers."""

import plait as mx
from plait import autograd, gluon, nd
from plait.gluon import nn, rnn
from plait.graph import tiers


class Residual(gluon.HybridBlock):
    """Convolutions of each kind: 3 x 3, 1 x 1, strided, depthwise; a sum, a join."""

    def __init__(self, channels: int, act: str):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(
            nn.Conv2D(channels, 3, padding=1, in_channels=channels),
            nn.BatchNorm(),
            nn.Activation(act),
            nn.Conv2D(channels, 3, padding=1, groups=channels, in_channels=channels),
            nn.Conv2D(channels, 1, in_channels=channels),
            nn.BatchNorm(),
        )
        self.down = nn.Conv2D(2 * channels, 3, strides=2, padding=1, in_channels=2 * channels)

    def hybrid_forward(self, F, x):
        y = F.relu(self.body(x) + x)
        return self.down(F.concat(x, y, dim=1))


def image_network(channels: int, act: str, classes: int = 10):
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(channels, 5, padding=2, in_channels=3),
        nn.Activation(act),
        nn.MaxPool2D(2),
        Residual(channels, act),
        nn.GlobalAvgPool2D(),
        nn.Dropout(0.25),
        nn.Dense(24, activation=act),
        nn.LayerNorm(),
        nn.Dense(classes),
    )
    return net


def sequence_network(kind):
    net = nn.HybridSequential()
    net.add(nn.Embedding(20, 12), kind(16, layout="NTC"), nn.Dense(7, flatten=False))
    return net


def use(net, x, y, optimizer: str, **kwargs) -> None:
    """Inference and training, as graphs run first and as they run compiled."""
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, kwargs)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(2):
        for _ in range(3):
            net(x).wait_to_read()
            with autograd.record():
                out = loss(net(x), y)
            out.backward()
            trainer.step(x.shape[0])
        nd.waitall()
        tiers.wait_compiled()


def run() -> None:
    mx.random.seed(1)
    labels = nd.array([1, 3])
    shapes = ((16, "relu", 24), (8, "tanh", 9), (32, "sigmoid", 16), (12, "softrelu", 11))
    for channels, act, size in shapes:
        x = nd.random.normal(shape=(2, 3, size, size))
        use(image_network(channels, act), x, labels, "sgd", momentum=0.9)
    words = nd.array([[1, 4, 2, 9, 3], [5, 6, 0, 8, 1]])
    for kind, optimizer in ((rnn.LSTM, "adam"), (rnn.GRU, "rmsprop"), (rnn.RNN, "nag")):
        use(sequence_network(kind), words, nd.array([[1, 2, 3, 4, 5]] * 2), optimizer)
    double = sequence_network(rnn.LSTM)
    double.cast("float64")
    use(double, words, nd.array([[1, 2, 3, 4, 5]] * 2), "sgd")

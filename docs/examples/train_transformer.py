"""Trains a small transformer to sort numbers: it says, at each place of a sequence, the number that
belongs there.

python docs/examples/train_transformer.py --steps 300
"""

import argparse
import time

import numpy as np
import plait as mx
from plait import autograd, gluon, nd
from plait.gluon import nn


class Encoder(gluon.HybridBlock):
    """One layer of self-attention and a feed-forward network. (N, T, units) -> (N, T, units)."""

    def __init__(self, units: int, heads: int, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.scale = heads, (units // heads) ** -0.5
        with self.name_scope():
            self.qkv = nn.Dense(3 * units, flatten=False, in_units=units)
            self.merge = nn.Dense(units, flatten=False, in_units=units)
            self.grow = nn.Dense(4 * units, flatten=False, in_units=units)
            self.shrink = nn.Dense(units, flatten=False, in_units=4 * units)
            self.gelu = nn.GELU()
            self.norm1, self.norm2 = (
                nn.LayerNorm(in_channels=units),
                nn.LayerNorm(in_channels=units),
            )

    def split(self, F, x):
        """(N, T, units) -> (N * heads, T, units / heads)."""
        x = F.transpose(F.reshape(x, shape=(0, 0, self.heads, -1)), axes=(0, 2, 1, 3))
        return F.reshape(x, shape=(-3, 0, 0))

    def hybrid_forward(self, F, x):
        q, k, v = (self.split(F, t) for t in F.split(self.qkv(x), 3, axis=-1))
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale, axis=-1)
        y = F.reshape(F.batch_dot(weights, v), shape=(-4, -1, self.heads, 0, 0))
        y = F.reshape(F.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = self.norm1(x + self.merge(y))
        return self.norm2(x + self.shrink(self.gelu(self.grow(x))))


class Sorter(gluon.HybridBlock):
    """Numbers (N, T) -> scores (N, T, vocabulary)."""

    def __init__(self, vocabulary: int, length: int, units: int, heads: int, layers: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, units)
            self.place = self.params.get(
                "place", shape=(1, length, units), init=mx.init.Normal(0.1)
            )
            self.body = nn.HybridSequential()
            for _ in range(layers):
                self.body.add(Encoder(units, heads))
            self.scores = nn.Dense(vocabulary, flatten=False, in_units=units)

    def hybrid_forward(self, F, x, place):
        return self.scores(self.body(F.broadcast_add(self.embedding(x), place)))


def main(argv=None) -> list[float]:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--length", type=int, default=10, help="numbers in a sequence")
    p.add_argument("--vocabulary", type=int, default=20, help="numbers are 0 to this, exclusive")
    p.add_argument("--units", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.002)
    args = p.parse_args(argv)
    mx.seed_all(1)
    rng = np.random.default_rng(1)
    net = Sorter(args.vocabulary, args.length, args.units, heads=4, layers=2)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": args.lr})
    history, start = [], time.perf_counter()
    for step in range(1, args.steps + 1):
        numbers = rng.integers(0, args.vocabulary, (args.batch_size, args.length))
        x, y = nd.array(numbers), nd.array(np.sort(numbers, axis=1))
        with autograd.record():
            scores = net(x)
            loss = loss_of(scores, y)
        loss.backward()
        trainer.step(args.batch_size)
        if step % 100 == 0 or step == args.steps:
            right = float((scores.argmax(axis=-1) == y).mean().asscalar())
            history.append(right)
            print(
                f"step {step}  loss {float(loss.mean().asscalar()):.3f}  right {right:.1%}  "
                f"{time.perf_counter() - start:.1f} s",
                flush=True,
            )
    return history


if __name__ == "__main__":
    main()

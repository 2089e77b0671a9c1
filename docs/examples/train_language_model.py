"""Trains an LSTM language model on characters: the works of the standard library's own
documentation.

    python docs/examples/train_language_model.py --epochs 2
    python docs/examples/train_language_model.py --text my.txt

Perplexity (exp of the mean loss a character, dimensionless) falls; then the model writes a line of
its own.
"""

import argparse
import math
import pydoc_data.topics
import time

import numpy as np
import plait as mx
from plait import autograd, gluon, nd
from plait.gluon import nn, rnn


class LanguageModel(gluon.HybridBlock):
    """Characters (T, N) and LSTM states -> scores (T, N, vocabulary) and new states."""

    def __init__(self, vocabulary: int, hidden: int, layers: int = 1, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, hidden)
            self.lstm = rnn.LSTM(hidden, layers, input_size=hidden)
            self.scores = nn.Dense(vocabulary, flatten=False, in_units=hidden)

    def hybrid_forward(self, F, x, states):
        y, states = self.lstm(self.embedding(x), states)
        return self.scores(y), states


def batches(codes: np.ndarray, steps: int, batch_size: int):
    """Pieces of `batch_size` parallel streams: inputs and targets (T, N), the target one character
    later."""
    n = (len(codes) - 1) // batch_size
    x = codes[: n * batch_size].reshape(batch_size, n).T
    y = codes[1 : n * batch_size + 1].reshape(batch_size, n).T
    for start in range(0, n - steps + 1, steps):
        yield nd.array(x[start : start + steps]), nd.array(y[start : start + steps])


def write(net, characters: str, start: str, length: int) -> str:
    """Continues a text: at each step the most probable character."""
    index = {c: i for i, c in enumerate(characters)}
    states, text = net.lstm.begin_state(batch_size=1), start
    for i in range(len(start) + length - 1):
        scores, states = net(nd.array([[index[text[i]]]]), states)
        if i >= len(start) - 1:
            text += characters[int(scores[0, 0].argmax(axis=0).asscalar())]
    return text


def main(argv=None) -> list[float]:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--text", help="a text file (default: Python's documentation topics)")
    p.add_argument("--characters", type=int, default=200_000, help="how much of the text to use")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--steps", type=int, default=35, help="characters a training step")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=0.003)
    args = p.parse_args(argv)
    mx.seed_all(1)
    text = (
        open(args.text, encoding="utf-8").read()
        if args.text
        else "".join(pydoc_data.topics.topics.values())
    )
    text = text[: args.characters]
    characters = "".join(sorted(set(text)))
    index = {c: i for i, c in enumerate(characters)}
    codes = np.array([index[c] for c in text], np.float32)

    net = LanguageModel(len(characters), args.hidden)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": args.lr})
    history = []
    for epoch in range(1, args.epochs + 1):
        states = net.lstm.begin_state(batch_size=args.batch_size)
        total, count, start = nd.zeros((1,)), 0, time.perf_counter()
        for x, y in batches(codes, args.steps, args.batch_size):
            states = [s.detach() for s in states]
            with autograd.record():
                scores, states = net(x, states)
                loss = loss_of(scores.reshape((-1, len(characters))), y.reshape((-1,)))
            loss.backward()
            gluon.utils.clip_global_norm(
                [q.grad() for q in net.collect_params().values()], args.batch_size * args.steps
            )
            trainer.step(args.batch_size * args.steps)
            total += loss.sum()
            count += loss.size
        history.append(math.exp(float(total.asscalar()) / count))
        print(
            f"epoch {epoch}  perplexity {history[-1]:.2f}  {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    print(repr(write(net, characters, "The ", 60)))
    return history


if __name__ == "__main__":
    main()

"""Measures what a net costs for each length of its sequences.

    python tests/gluon/lengths.py dense|lstm predict|train 2000

Three passes over all lengths in random order. Prints, a line for each pass: KB of resident memory
more than after ten lengths, for each length; milliseconds a call; programs made.
"""

import gc
import random
import sys
import time

import plait as mx
from plait import autograd, engine, gluon, nd
from plait.gluon import nn, rnn
from plait.graph import program

N_WARM = 10


class Tagger(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.lstm = rnn.LSTM(16, 2, layout="NTC", input_size=8)
            self.head = nn.Dense(4, flatten=False, in_units=16)

    def hybrid_forward(self, F, x):
        return self.head(self.lstm(x))


def network(kind):
    if kind == "lstm":
        net = Tagger()
    else:
        net = nn.HybridSequential()
        for n_in, n_out in ((8, 16), (16, 16), (16, 4)):
            net.add(nn.Dense(n_out, flatten=False, activation="relu", in_units=n_in))
    net.initialize()
    net.hybridize()
    return net


def resident_kb():
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss"))


def measure(kind, mode, n_lengths, n_passes=3):
    """[(KB a length, milliseconds a call, programs made)], one for each pass."""
    net, loss_of = network(kind), gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    made, assemble = [0], program.assemble

    def counted(*args, **kwargs):
        made[0] += 1
        return assemble(*args, **kwargs)

    program.assemble = counted

    def call(length):
        x = nd.ones((2, length, 8))
        if mode == "predict":
            net(x).wait_to_read()
            return
        with autograd.record():
            loss = loss_of(net(x), nd.zeros((2, length)))
        loss.backward()
        trainer.step(2)
        engine.waitall()  # a caller that runs ahead holds the results of many calls

    lengths = list(range(3, 3 + N_WARM + n_lengths))
    for length in lengths[:N_WARM] * 20:
        call(length)
    engine.waitall()
    mx.wait_compiled()
    before, rest, found = resident_kb(), lengths[N_WARM:], []
    for _ in range(n_passes):
        random.Random(0).shuffle(rest)
        made[0], start = 0, time.perf_counter()
        for length in rest:
            call(length)
        engine.waitall()
        ms = (time.perf_counter() - start) * 1e3 / n_lengths
        found.append(((resident_kb() - before) / n_lengths, ms, made[0]))
    return found


if __name__ == "__main__":
    for kb, ms, n_made in measure(sys.argv[1], sys.argv[2], int(sys.argv[3])):
        print(f"{kb:.1f} KB a length, {ms:.3f} ms a call, {n_made} programs made")

"""A network of two stages, each on a device of its own, for the tests of placement."""

import numpy as np
from plait import gluon, nd
from plait.gluon import nn


class Stages(gluon.HybridBlock):
    """Layers on one device, then layers on another; the copy is part of forward."""

    def __init__(self, second):
        super().__init__(prefix="stages_")
        self.second = second
        with self.name_scope():
            self.low = nn.Dense(3, activation="tanh", in_units=4)
            self.norm = nn.BatchNorm(in_channels=3)
            self.high = nn.Dense(2, in_units=3)

    def hybrid_forward(self, F, x):
        return self.high(self.norm(self.low(x).as_in_context(self.second)))


def network(first, second, hybridize=False):
    net = Stages(second)
    net.low.initialize(ctx=first)
    net.norm.initialize(ctx=second)
    net.high.initialize(ctx=second)
    values = np.random.RandomState(0)
    for name, p in net.collect_params().items():
        if "running" not in name:
            p.set_data(nd.array(values.randn(*p.shape)))
    if hybridize:
        net.hybridize()
    return net

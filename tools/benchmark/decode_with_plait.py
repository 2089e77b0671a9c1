"""Decoding on plait: see decode_timing.py. Modes: float32, int8."""

from __future__ import annotations

from typing import Any

import plait as mx
from decode_timing import Sizes, serve, weights_of
from plait import nd
from plait.gluon import HybridBlock, nn


class Layer(HybridBlock):
    """Attention and two dense layers, each on normalised input and added to it."""

    def __init__(self, units: int):
        super().__init__()
        with self.name_scope():
            self.norm = nn.LayerNorm(in_channels=units)
            self.qkv = nn.Dense(3 * units, flatten=False, in_units=units)
            self.out = nn.Dense(units, flatten=False, in_units=units)
            self.norm_up = nn.LayerNorm(in_channels=units)
            self.up = nn.Dense(4 * units, flatten=False, in_units=units)
            self.down = nn.Dense(units, flatten=False, in_units=4 * units)

    def hybrid_forward(self, F: Any, x: Any, position: Any, keys: Any, values: Any) -> Any:
        q, k, v = F.split(self.qkv(self.norm(x)), num_outputs=3, axis=2)
        x = x + self.out(F.contrib.cached_attention(q, k, v, keys, values, position))
        return x + self.down(F.LeakyReLU(self.up(self.norm_up(x)), act_type="gelu"))


class Decoder(HybridBlock):
    """Tokens (1, n) after `position` others -> the next token (1, 1)."""

    def __init__(self, s: Sizes):
        super().__init__()
        with self.name_scope():
            self.tokens = nn.Embedding(s.vocabulary, s.units)
            self.places = nn.Embedding(s.length, s.units)
            self.layers = nn.HybridSequential()
            for _ in range(s.layers):
                self.layers.add(Layer(s.units))
            self.norm = nn.LayerNorm(in_channels=s.units)
            self.scores = nn.Dense(s.vocabulary, flatten=False, use_bias=False, in_units=s.units)

    def hybrid_forward(self, F: Any, tokens: Any, position: Any, states: Any) -> Any:
        at = F.broadcast_add(F.contrib.arange_like(tokens, axis=1), position)
        x = F.broadcast_add(self.tokens(tokens), F.expand_dims(self.places(at), axis=0))
        for layer, (keys, values) in zip(self.layers, states):
            x = layer(x, position, keys, values)
        last = F.slice_axis(self.norm(x), axis=1, begin=-1, end=None)
        return F.argmax(self.scores(last), axis=2)


def make(s: Sizes, mode: str) -> Any:
    net, given = Decoder(s), weights_of(s)
    net.initialize()
    blocks = {"norm": net.norm, "tokens": net.tokens, "places": net.places, "scores": net.scores}
    for i, layer in enumerate(net.layers):
        blocks.update((f"{name}{i}", child) for name, child in layer._children.items())
    for name, value in given.items():
        block, _, parameter = name.partition(".")
        getattr(blocks[block], parameter or "weight").set_data(nd.array(value))
    if mode == "int8":
        mx.gluon.contrib.quantize_weights(net)
    net.hybridize()
    shape = (1, s.heads, s.length, s.units // s.heads)
    states = [[nd.zeros(shape), nd.zeros(shape)] for _ in range(s.layers)]

    def step(tokens: Any, position: int) -> Any:
        return net(nd.array(tokens), nd.array([position]), states).asnumpy()

    return step


if __name__ == "__main__":
    serve(make)

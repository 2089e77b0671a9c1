"""Decoding on torch: see decode_timing.py. Modes: eager, compile."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from decode_timing import Sizes, serve, weights_of


class Decoder(torch.nn.Module):
    """Tokens (1, n) after `position` others -> the next token (1, 1)."""

    def __init__(self, s: Sizes):
        super().__init__()
        self.s = s
        self.w = {k: torch.from_numpy(v) for k, v in weights_of(s).items()}
        shape = (1, s.heads, s.length, s.units // s.heads)
        self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(s.layers)]

    def dense(self, x: Any, name: str) -> Any:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def normed(self, x: Any, name: str) -> Any:
        return F.layer_norm(x, x.shape[-1:], self.w[f"{name}.gamma"], self.w[f"{name}.beta"])

    def forward(self, tokens: Any, at: Any, mask: Any) -> Any:
        """at: places of the tokens. mask: (n, keys), which of the first keys each sees."""
        x = F.embedding(tokens, self.w["tokens"]) + F.embedding(at, self.w["places"])
        for i, (keys, values) in enumerate(self.caches):
            qkv = self.dense(self.normed(x, f"norm{i}"), f"qkv{i}")
            q, k, v = (
                y.unflatten(-1, (self.s.heads, -1)).transpose(1, 2) for y in qkv.chunk(3, -1)
            )
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            n = mask.shape[-1]
            y = F.scaled_dot_product_attention(q, keys[:, :, :n], values[:, :, :n], mask)
            x = x + self.dense(y.transpose(1, 2).flatten(2), f"out{i}")
            x = x + self.dense(
                F.gelu(self.dense(self.normed(x, f"norm_up{i}"), f"up{i}")), f"down{i}"
            )
        scores = F.linear(self.normed(x[:, -1:], "norm"), self.w["scores.weight"])
        return scores.argmax(-1)


def make(s: Sizes, mode: str) -> Any:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()))
    net = Decoder(s)
    run = torch.compile(net) if mode == "compile" else net
    whole = torch.ones(s.length, s.length, dtype=torch.bool).tril()

    @torch.inference_mode()
    def step(tokens: Any, position: int) -> Any:
        n = tokens.shape[1]
        # a compiled step has one shape for all positions
        seen = s.length if mode == "compile" else position + n
        mask = whole[position : position + n, :seen]
        return run(torch.from_numpy(tokens), torch.arange(position, position + n), mask).numpy()

    return step


if __name__ == "__main__":
    serve(make)

"""What test_faults.py runs on several ranks: training with checkpoints, in which the last rank
fails once, in the way that is asked for. Rank 0 prints the digest of the weights at the end; a rank
that gets an error prints when, and which."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn

STEPS, FAULT, BATCH = 8, 5, 12


def raises() -> None:
    raise ValueError("no such batch")


FAULTS = {
    "none": lambda: None,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raises": raises,
    "unequal": lambda: sys.exit(0),
    "differs": lambda: dist.all_reduce(nd.ones((40, 50)), name="norm").wait_to_read(),
    "cut": lambda: subprocess.run(["ip", "link", "set", "eth0", "down"], check=True),
    "silent": lambda: threading.Event().wait(),
}


def main(fault: str, file: str) -> None:
    world = dist.init()
    mx.random.seed(3)
    net = nn.Dense(10, in_units=6)
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "adam", {}, kvstore="dist_sync")
    checkpoint = mx.checkpoint.Checkpoint(file, net=net, trainer=trainer, step=0)
    checkpoint.restore()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    while checkpoint.step < STEPS:
        generator = np.random.default_rng([checkpoint.step, world.rank])
        x = nd.array(generator.standard_normal((BATCH, 6)))
        y = nd.array(generator.integers(0, 10, BATCH))
        if checkpoint.step == FAULT and dist.environment.restarts() == 0:
            if world.rank == world.size - 1:
                FAULTS[fault]()
            elif fault == "differs":
                dist.all_reduce(nd.ones((3,)), name="norm").wait_to_read()
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(BATCH * world.size)
        checkpoint.step += 1
        checkpoint.save()
    if world.rank == 0:
        weights = b"".join(p.data().asnumpy().tobytes() for p in net.collect_params().values())
        print("digest", hashlib.sha256(weights).hexdigest(), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        told = f"told {dist.rank()} {time.time()} " + " ".join(str(error).split()) + "\n"
        os.write(1, told.encode())  # a line in one piece
        raise

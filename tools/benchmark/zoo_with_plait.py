"""Inference with a network of the zoo.

usage: zoo_with_plait.py NETWORK SECONDS PACKAGE BATCH SIZE
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
from timing import time_workload

mx = importlib.import_module(sys.argv[3])


def make() -> Any:
    net = mx.gluon.model_zoo.vision.get_model(sys.argv[1])
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    batch, size = map(int, sys.argv[4:6])
    x = mx.nd.array(np.random.RandomState(0).rand(batch, 3, size, size).astype("float32"))
    return lambda: net(x)


time_workload({sys.argv[1]: make}, mx.nd.waitall, mx.wait_compiled)

"""Sizes of caches decide how kernels cut their work, and no bit of a result."""

import subprocess
from pathlib import Path

import numpy as np
import plait
import pytest
from plait import nd
from plait.engine import lib
from plait.gluon import nn, rnn

SIZES = [(128 << 10, 0), (512 << 10, 16 << 20), (4 << 20, 64 << 20)]
rng = np.random.default_rng(3)


def product():
    a, b = rng.standard_normal((130, 2100)), rng.standard_normal((2100, 600))
    x, w = nd.array(a), nd.array(b)
    return lambda: nd.dot(x, w), x.asnumpy().astype("f8") @ w.asnumpy().astype("f8")


def narrow_product():
    a, b = rng.integers(-9, 9, (70, 900)), rng.integers(-9, 9, (900, 500))
    x, w = nd.array(a, dtype="bfloat16"), nd.array(b, dtype="bfloat16")
    return lambda: nd.dot(x, w).astype("float32"), None


def network(*layers, shape):
    """Compiled, so that kernels on blocks of channels run."""
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net.hybridize()
    x = nd.array(rng.standard_normal(shape))
    net(x)
    net.freeze()
    return lambda: net(x), None


def convolutions():
    layers = [
        nn.Conv2D(64, 3, padding=1),
        nn.Conv2D(48, 5, strides=2),
        nn.Conv2D(96, 1, activation="relu"),
    ]
    return network(*layers, shape=(2, 32, 60, 60))


def recurrent():
    layer = rnn.LSTM(150, 2)
    layer.initialize()
    x = nd.array(rng.standard_normal((9, 16, 40)))
    return lambda: layer(x), None


def pooling():
    x = nd.array(rng.standard_normal((2, 3, 150, 140)))
    return lambda: nd.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max"), None


CASES = [product, narrow_product, convolutions, recurrent, pooling]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_results_do_not_depend_on_caches(case):
    run, expected = case()
    try:
        results = []
        for own, share in SIZES:
            lib.plk_cache_set(own, share)
            results.append(run().asnumpy())
    finally:
        lib.plk_cache_set(0, 0)
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    if expected is not None:
        np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)


# (type, size, processors that share it) of each cache -> (own, share), in KB
MACHINES = {
    "two threads a core, a part of L3 for each core": (
        [
            ("Data", "48K", "0,56"),
            ("Instruction", "32K", "0,56"),
            ("Unified", "2048K", "0,56"),
            ("Unified", "105M", "0-27,56-83"),
        ],
        (2048, 48 + 2048 + 105 * 1024 * 2 // 56),
    ),
    "small cores that share their second cache": (
        [
            ("Data", "32K", "0"),
            ("Instruction", "64K", "0"),
            ("Unified", "2048K", "0-3"),
        ],
        (512, 32 + 512),
    ),
    "a virtual machine that lists no sizes": ([("Data", "", ""), ("Unified", "", "")], (512, 1024)),
    "nothing": ([], (512, 1024)),
    "an own L2 and no L3": ([("Data", "64K", "3"), ("Unified", "1M", "3")], (1024, 1088)),
}
PRINTS = """
#include "cache.h"
#include <stdio.h>
int main(void) { printf("%lld %lld", (long long)plk_cache_own(), (long long)plk_cache_share()); }
"""


@pytest.mark.parametrize("name", MACHINES)
def test_sizes_of_other_machines(name, tmp_path):
    caches, expected = MACHINES[name]
    for i, texts in enumerate(caches):
        (tmp_path / f"index{i}").mkdir()
        for file, text in zip(("type", "size", "shared_cpu_list"), texts, strict=True):
            (tmp_path / f"index{i}" / file).write_text(text + "\n")
    (tmp_path / "main.c").write_text(PRINTS)
    made = tmp_path / "sizes"
    source = Path(plait.__file__).parent / "kernels/cpu"
    flags = ["-std=gnu11", f"-I{source}", f'-DPLK_CACHES="{tmp_path}"']
    files = [tmp_path / "main.c", source / "cache.c"]
    subprocess.run(["cc", *flags, *files, "-o", made], check=True)
    found = subprocess.run([made], capture_output=True, text=True, check=True).stdout
    assert tuple(int(n) >> 10 for n in found.split()) == expected


def test_sizes_are_those_that_linux_lists():
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    listed = [
        int(f.read_text().rstrip("K\n")) << 10
        for f in folder.glob("index*/size")
        if "K" in f.read_text()
    ]
    own, share = lib.plk_cache_own(), lib.plk_cache_share()
    assert 128 << 10 <= own <= share
    assert not listed or own in listed or max(listed) < 128 << 10
    assert not listed or share <= max(sum(listed), 1 << 20)

"""Kernels on several threads of the pool: the same bits as on one."""

import os
import subprocess
import sys

PROGRAM = """
import hashlib, numpy as np, plait
from plait import autograd, init, nd
from plait.gluon import nn
rng = np.random.default_rng(0)
x = nd.array(rng.normal(size=(6, 64, 64, 40)))
wide = nd.array(rng.normal(size=(300, 2000)))
boxes = nd.array(rng.uniform(size=(4, 500, 6)))
rois = nd.array(np.concatenate([rng.integers(0, 6, (20, 1)), rng.uniform(0, 20, (20, 2)),
                                rng.uniform(20, 60, (20, 2))], 1))
lengths = nd.array(rng.integers(1, 300, 2000))
spd = rng.normal(size=(30, 40, 40))
spd = nd.array(spd @ spd.transpose(0, 2, 1) + 40 * np.eye(40))
small = nd.array(rng.normal(size=(30, 40, 40)))
grid = nd.array(rng.uniform(-1, 1, (6, 2, 50, 50)))
labels = nd.array(rng.integers(1, 30, (16, 10)))
acts = nd.array(rng.normal(size=(40, 16, 30)))
csr = nd.array(rng.normal(size=(800, 900)) * (rng.uniform(size=(800, 900)) < 0.05)).tostype("csr")
bytes_in, bytes_of = (nd.array(rng.integers(-1, 2, size)).astype("int8")
                      for size in ((3, 250, 33, 42), (72, 250, 3, 3)))
dense, tall = nd.array(rng.normal(size=(900, 128))), nd.array(rng.normal(size=(800, 128)))
F = {
    "take": lambda: nd.take(wide, nd.array(rng.integers(0, 300, 3000))),
    "reverse": lambda: nd.SequenceReverse(wide.reshape((300, 2000, 1)), lengths, True),
    "mask": lambda: nd.SequenceMask(wide.reshape((300, 2000, 1)), lengths, True),
    "pad": lambda: nd.pad(x, mode="edge", pad_width=(0, 0, 0, 0, 2, 3, 4, 5)),
    "arange": lambda: nd.arange(0, 1e6),
    "cumsum": lambda: nd.cumsum(wide, axis=0),
    "cumsum of rows": lambda: nd.cumsum(wide, axis=1),
    "argmax": lambda: nd.argmax(wide, axis=1),
    "sort": lambda: nd.sort(wide, axis=0),
    "long sort": lambda: nd.sort(x.reshape(-1), axis=0),
    "topk": lambda: nd.topk(wide, k=3),
    "normal": lambda: nd.random.normal(shape=(300000,)),
    "randint": lambda: nd.random.randint(0, 1000, shape=(300000,)),
    "dropout": lambda: nd.Dropout(wide, p=0.3, mode="always"),
    "softmax": lambda: nd.softmax(x, axis=1),
    "transpose": lambda: nd.transpose(x, (0, 2, 3, 1)),
    "full": lambda: nd.full((1000, 1000), 3),
    "iou": lambda: nd.contrib.box_iou(boxes[0, :, :4], boxes[1, :, :4]),
    "nms": lambda: nd.contrib.box_nms(boxes, coord_start=2, score_index=1, id_index=0),
    "roi align": lambda: nd.contrib.ROIAlign(x, rois, (7, 7), 1.0),
    "roi pool": lambda: nd.ROIPooling(x, rois, (7, 7), 1.0),
    "upsample": lambda: nd.UpSampling(x, scale=2, sample_type="nearest"),
    "resize": lambda: nd.contrib.BilinearResize2D(x, height=90, width=50),
    "sampler": lambda: nd.BilinearSampler(x, grid),
    "potrf": lambda: nd.linalg.potrf(spd),
    "trsm": lambda: nd.linalg.trsm(spd, small, rightside=True),
    "ctc": lambda: nd.CTCLoss(acts, labels),
    "winograd of bytes": lambda: nd.Convolution(bytes_in, bytes_of, kernel=(3, 3), pad=(1, 1),
                                                num_filter=72, no_bias=True),
    "csr": lambda: nd.sparse.dot(csr, dense),
    "csr transposed": lambda: nd.sparse.dot(csr, tall, transpose_a=True),
}
GRADIENTS = {"take", "reverse", "mask", "pad", "cumsum", "cumsum of rows", "dropout", "softmax",
             "transpose", "upsample", "resize", "sampler", "trsm", "ctc", "roi align", "roi pool"}
for data in (x, wide, boxes, acts, grid, small):
    data.attach_grad()
for name, f in F.items():
    with autograd.record():
        y = f()
    h = hashlib.sha256(y.asnumpy().tobytes())
    if name in GRADIENTS:
        y.backward()
        for data in (x, wide, acts, grid, small):
            h.update(data.grad.asnumpy().tobytes())
    print(name, h.hexdigest())
net = nn.HybridSequential()
net.add(nn.Conv2D(32, 7, 2, 3, activation="relu"), nn.Conv2D(96, 1), nn.Swish(),
        nn.Conv2D(96, 3, 1, 1, groups=96), nn.Conv2D(24, 1), nn.Conv2D(600, 3, 2, 1),
        nn.Conv2D(40, 1))
net.initialize(init.Xavier())
net.hybridize(static_alloc=True, static_shape=True)
for shape in ((1, 3, 90, 70), (3, 3, 61, 33)):
    image = nd.array(rng.normal(size=shape))
    for _ in range(3):
        net(image).wait_to_read()
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.normal(size=p.shape)))
    plait.wait_compiled()
    print("convolutions", shape, hashlib.sha256(net(image).asnumpy().tobytes()).hexdigest())
"""


def _run(n_threads: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "OMP_NUM_THREADS": str(n_threads)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_any_number_of_threads_gives_the_same_bits():
    one = _run(1)
    assert len(one) > 20
    for n_threads in (2, 4):
        assert _run(n_threads) == one

"""Scripts as they are written for Horovod and BytePS, for test_horovod.py: it runs them in
compatibility mode, where neither library nor MXNet is installed."""

import argparse
import hashlib

import byteps.mxnet as bps
import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("cases", nargs="+")
args = parser.parse_args()

STEPS, BATCH, SIDE = 10, 24, 12
hvd.init()
bps.init()
rank, size = hvd.rank(), hvd.size()
context = mx.cpu(0)

generator = np.random.RandomState(5)
images = generator.randn(STEPS * BATCH, 1, SIDE, SIDE).astype("float32")
labels = generator.randint(0, 10, STEPS * BATCH).astype("float32")
n = BATCH // size
mine = np.arange(STEPS * BATCH).reshape(STEPS, size, n)[:, rank].ravel()
train_data = mx.io.NDArrayIter(images[mine], labels[mine], batch_size=n)


def train_gluon(make_trainer, broadcasts=None):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 3, activation="relu"), gluon.nn.MaxPool2D(), gluon.nn.Flatten())
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))  # 409 KB and small ones
    net.hybridize()
    net.initialize(mx.init.Xavier(), ctx=context)
    params = net.collect_params()
    if broadcasts:
        broadcasts.broadcast_parameters(params, root_rank=0)  # shapes are not known yet
    trainer = make_trainer(params)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    for batch in train_data:
        data, label = batch.data[0].as_in_context(context), batch.label[0].as_in_context(context)
        with autograd.record():
            loss = loss_fn(net(data), label)
        loss.backward()
        trainer.step(n if trainer.kvstore_is_ours else BATCH)
    return [p.data() for _, p in sorted(net._collect_params_with_prefix().items())]


def distributed(module, **options):
    def make(params):
        optimizer = {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3}
        trainer = module.DistributedTrainer(params, "sgd", optimizer, **options)
        trainer.kvstore_is_ours = True
        return trainer

    return make


def by_store(name):
    def make(params):
        optimizer = {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3}
        trainer = gluon.Trainer(params, "sgd", optimizer, kvstore=name)
        trainer.kvstore_is_ours = False
        return trainer

    return make


def train_module(make_optimizer, kvstore=None, dist=hvd):
    data = mx.sym.Flatten(mx.sym.var("data"))
    net = mx.sym.FullyConnected(data, num_hidden=64, name="a")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=10, name="b")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    model = mx.mod.Module(net, context=context)
    model.bind(train_data.provide_data, train_data.provide_label)
    model.init_params(mx.init.Xavier())
    arg_params, aux_params = model.get_params()
    if kvstore is None:
        dist.broadcast_parameters(arg_params, root_rank=0)
        dist.broadcast_parameters(aux_params, root_rank=0)
        model.set_params(arg_params=arg_params, aux_params=aux_params)
    options = {"learning_rate": 0.05, "momentum": 0.9, "sym": net}
    optimizer = make_optimizer(mx.optimizer.create("sgd", rescale_grad=1.0 / n, **options))
    model.fit(train_data, kvstore=kvstore, optimizer=optimizer, num_epoch=1)
    return [a for _, a in sorted(model.get_params()[0].items())]


def plain(optimizer):
    optimizer.rescale_grad = 1.0 / BATCH
    return optimizer


def predivided(optimizer):
    return hvd.DistributedOptimizer(optimizer, gradient_predivide_factor=2.0)


CASES = {
    "horovod trainer": lambda: train_gluon(distributed(hvd), hvd),
    "horovod trainer, predivided": lambda: train_gluon(
        distributed(hvd, gradient_predivide_factor=2.0), hvd
    ),
    "horovod trainer, fp16": lambda: train_gluon(
        distributed(hvd, compression=hvd.Compression.fp16), hvd
    ),
    "horovod store": lambda: train_gluon(by_store("horovod")),
    "horovod module": lambda: train_module(hvd.DistributedOptimizer),
    "horovod module, predivided": lambda: train_module(predivided),
    "horovod module, store": lambda: train_module(plain, "horovod"),
    "byteps trainer": lambda: train_gluon(distributed(bps), bps),
    "byteps store": lambda: train_gluon(by_store("byteps")),
    "byteps module": lambda: train_module(bps.DistributedOptimizer, dist=bps),
}
for case in args.cases:
    mx.random.seed(11 + rank)  # other first values on each rank: those of rank 0 must win
    train_data.reset()
    values = [w.asnumpy() for w in CASES[case]()]
    digest = hashlib.sha256(b"".join(v.tobytes() for v in values)).hexdigest()
    assert len(set(hvd.allgather_object(digest))) == 1, case + ": ranks have different weights"
    if rank == 0:
        np.savez("%s/%s" % (args.folder, case), *values)
        print("same weights on %d ranks:" % size, case, flush=True)
bps.shutdown()
hvd.shutdown()

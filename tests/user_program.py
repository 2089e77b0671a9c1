"""What a type checker sees of plait in a user's program; read by tests/check.py, never run."""

import numpy as np
import plait as mx
from plait import autograd, gluon, nd, sym
from plait.gluon import nn

# nd: names, keywords, kinds of arguments, results
x = nd.ones((2, 3), ctx=mx.cpu(), dtype="float32")
product: mx.nd.NDArray = nd.dot(x, x, transpose_b=True)
parts: list[mx.nd.NDArray] = nd.moments(x, axes=(0,))
nd.dto(x, x)  # error: attr-defined
nd.linalg.gemm3(x, x)  # error: attr-defined
nd.contrib.box_nsm(x)  # error: attr-defined
nd.random.unifrom(0, 1)  # error: attr-defined
nd.random.uniform_like(x, hihg=2.0)  # error: call-arg
nd.sparse.csr_martix((2, 3))  # error: attr-defined
nd.relu(x, dta=x)  # error: call-arg
nd.relu()  # error: call-arg
nd.relu("x")  # error: arg-type
nd.FullyConnected(x, num_hiden=3)  # error: call-arg
nd.FullyConnected(x, num_hidden="three")  # error: arg-type
nd.transpose(x, axes=1.5)  # error: arg-type
nd.cast(x, dtype=3)  # error: arg-type
nd.cast(x, dtype=np.float32)
nd.zeros((2, 3), cxt=mx.cpu())  # error: arg-type
nd.zeros((2, 3), "cpu")  # error: arg-type
mx.ndd.zeros((2, 3))  # error: attr-defined
mx.gluon.metrics  # error: attr-defined

# methods and operators of NDArray
total: mx.nd.NDArray = x.sum(axis=1)
wrong: int = x.sum()  # error: assignment
x.sum(axes=1)  # error: call-arg
x.sum(keepdims="yes")  # error: arg-type
x.summ()  # error: attr-defined
x + "1"  # error: operator
number: float = (2 * x + np.float32(1))[0:1].asscalar()
x[:] = 3
transposed: mx.nd.NDArray = x.T.reshape((3, 2))

# sym, and methods of Symbol
a = sym.var("a")
s: mx.sym.Symbol = (a + 1).sum(axis=0)
a.sum(axes=2)  # error: call-arg
a + "1"  # error: operator
sym.relu(a, dta=1)  # error: call-arg
sym.relu(x)  # error: arg-type
sym.Activation(a, act_type=1)  # error: arg-type
sym.Actvation(a)  # error: attr-defined
sym.linalg.gemm3(a, a)  # error: attr-defined
sym.contrib.foreeach(a)  # error: attr-defined

# Gluon
net = nn.Dense(2)
net.initialize()
y: mx.nd.NDArray = net(x)
net(x, training=True)  # error: call-overload
number_of_net: int = net(x)  # error: assignment
composed: mx.sym.Symbol = net(a)
net(3)  # error: call-overload
chain = nn.HybridSequential()
chain.add(net)
chain.add(3)  # error: arg-type
chain(x, training=True)  # error: call-arg
chain.hybridise()  # error: attr-defined
anything: mx.nd.NDArray = chain(x)  # of blocks that are no layers nothing is known
nn.Dense(2, activation=3)  # error: arg-type
nn.Dens(2)  # error: attr-defined
gluon.rnn.LTSM(3)  # error: attr-defined
gluon.data.DataLoder([1])  # error: attr-defined


class Own(gluon.HybridBlock):
    """Blocks may name their inputs as they like, and take parameters by name."""

    def hybrid_forward(self, F, inputs, mask, **params):
        return F.relu(inputs) * mask


# Trainer
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
gluon.Trainer({}, "sgd", kv_store=None)  # error: call-arg
gluon.Trainer(net.collect_params(), 0.1)  # error: arg-type
with autograd.record():
    loss: mx.nd.NDArray = gluon.loss.L2Loss()(net(x), x)
loss.backward()
loss.backwards()  # error: attr-defined
trainer.step(batch_size=2)
trainer.step(batchsize=2)  # error: call-arg
trainer.step("2")  # error: arg-type
trainer.set_learning_rate("0.1")  # error: arg-type

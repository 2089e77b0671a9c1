"""What a type checker sees of plait in a user's program; read by tests/check.py, never run."""

import plait as mx
from plait import autograd, gluon, nd
from plait.gluon import nn

net = nn.Dense(2)
net.initialize()
x = nd.ones((2, 3))
y: mx.nd.NDArray = net(x)
net(x, training=True)  # error: call-overload
number_of_net: int = net(x)  # error: assignment
composed: mx.sym.Symbol = net(mx.sym.var("data"))
net(3)  # error: call-overload
chain = nn.HybridSequential()
chain.add(net)
chain(x, training=True)  # error: call-arg
anything: mx.nd.NDArray = chain(x)  # of blocks that are no layers nothing is known
total: mx.nd.NDArray = x.sum(axis=1)
wrong: int = x.sum()  # error: assignment
x.sum(axes=1)  # error: call-arg
x.summ()  # error: attr-defined
nd.relu(x, dta=x)  # error: call-arg
nd.FullyConnected(x, num_hiden=3)  # error: call-arg
number: float = (x + 1)[0:1].asscalar()
x[:] = 3
transposed: mx.nd.NDArray = x.T.reshape((3, 2))

a = mx.sym.var("a")
s: mx.sym.Symbol = (a + 1).sum(axis=0)
a.sum(axes=2)  # error: call-arg
mx.sym.relu(a, dta=1)  # error: call-arg

trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
gluon.Trainer({}, "sgd", kv_store=None)  # error: call-arg
with autograd.record():
    loss: mx.nd.NDArray = gluon.loss.L2Loss()(net(x), x)
loss.backward()
trainer.step(batch_size=2)

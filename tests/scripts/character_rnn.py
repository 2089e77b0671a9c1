"""A recurrent network from scratch whose state goes from batch to batch, gradients clipped. Prints
the losses."""

import mxnet as mx
import numpy as np
from mxnet import autograd, nd
from mxnet.gluon import loss as gloss

rs = np.random.RandomState(0)
num_inputs, num_hiddens, batch_size, num_steps = 11, 8, 3, 5
corpus = nd.array(rs.randint(0, num_inputs, (batch_size, 4 * num_steps + 1)))


def _one(shape):
    return nd.array(rs.normal(scale=0.1, size=shape))


params = [
    _one((num_inputs, num_hiddens)),
    _one((num_hiddens, num_hiddens)),
    nd.zeros(num_hiddens),
    _one((num_hiddens, num_inputs)),
    nd.zeros(num_inputs),
]
for param in params:
    param.attach_grad()


def rnn(inputs, state):
    W_xh, W_hh, b_h, W_hq, b_q = params
    (H,) = state
    outputs = []
    for X in inputs:
        H = nd.tanh(nd.dot(X, W_xh) + nd.dot(H, W_hh) + b_h)
        outputs.append(nd.dot(H, W_hq) + b_q)
    return outputs, (H,)


def grad_clipping(theta, ctx):
    norm = nd.array([0], ctx)
    for param in params:
        norm += (param.grad**2).sum()
    norm = norm.sqrt().asscalar()
    if norm > theta:
        for param in params:
            param.grad[:] *= theta / norm


loss = gloss.SoftmaxCrossEntropyLoss()
state = (nd.zeros(shape=(batch_size, num_hiddens)),)
for i in range(0, 4 * num_steps, num_steps):
    X, Y = corpus[:, i : i + num_steps], corpus[:, i + 1 : i + num_steps + 1]
    for s in state:
        s.detach()
    with autograd.record():
        outputs, state = rnn([nd.one_hot(x, num_inputs) for x in X.T], state)
        l = loss(nd.concat(*outputs, dim=0), Y.T.reshape((-1,))).mean()
    l.backward()
    grad_clipping(1e-2, mx.cpu())
    for param in params:
        param[:] = param - 100 * param.grad
    print(l.asscalar())

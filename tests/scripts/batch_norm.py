"""A small network whose batch normalisation is written with nd; weights from NumPy. Prints the
losses."""

import numpy as np
from mxnet import autograd, gluon, init, nd
from mxnet.gluon import nn

rs = np.random.RandomState(0)


class BatchNorm(nn.Block):
    def __init__(self, num_features, **kwargs):
        super(BatchNorm, self).__init__(**kwargs)
        shape = (1, num_features, 1, 1)
        self.gamma = self.params.get("gamma", shape=shape, init=init.One())
        self.beta = self.params.get("beta", shape=shape, init=init.Zero())
        self.moving_mean = nd.zeros(shape)
        self.moving_var = nd.zeros(shape)

    def forward(self, X):
        if autograd.is_training():
            mean = X.mean(axis=(0, 2, 3), keepdims=True)
            var = ((X - mean) ** 2).mean(axis=(0, 2, 3), keepdims=True)
            self.moving_mean = 0.9 * self.moving_mean + 0.1 * mean
            self.moving_var = 0.9 * self.moving_var + 0.1 * var
        else:
            mean, var = self.moving_mean, self.moving_var
        return self.gamma.data() * (X - mean) / nd.sqrt(var + 1e-5) + self.beta.data()


X = nd.array(rs.rand(4, 1, 12, 12))
y = nd.array([1, 2, 0, 2])
net = nn.Sequential()
net.add(
    nn.Conv2D(3, kernel_size=3),
    BatchNorm(3),
    nn.Activation("sigmoid"),
    nn.MaxPool2D(2, 2),
    nn.Dense(3),
)
net.initialize()
net(X)
for p in net.collect_params().values():
    p.set_data(nd.array(rs.uniform(-0.3, 0.3, p.shape)))
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
loss = gluon.loss.SoftmaxCrossEntropyLoss()
for i in range(4):
    with autograd.record():
        l = loss(net(X), y).mean()
    l.backward()
    trainer.step(1)
    print(l.asscalar())
print(loss(net(X), y).mean().asscalar())

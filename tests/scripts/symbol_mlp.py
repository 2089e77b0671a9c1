"""A symbolic network bound by hand and trained with an updater. Prints the mean probability of the
right class."""

import mxnet as mx
import numpy as np

rs = np.random.RandomState(0)
net = mx.sym.Variable("data")
net = mx.sym.FullyConnected(data=net, num_hidden=16, name="fc1")
net = mx.sym.Activation(data=net, act_type="relu", name="relu1")
net = mx.sym.FullyConnected(data=net, num_hidden=4, name="fc2")
net = mx.sym.SoftmaxOutput(data=net, name="softmax")
X = rs.rand(32, 10).astype("float32")
Y = rs.randint(0, 4, 32)
names = net.list_arguments()
executor = net.simple_bind(ctx=mx.cpu(), data=(8, 10), softmax_label=(8,), grad_req="write")
for name in names:
    if name not in ("data", "softmax_label"):
        executor.arg_dict[name][:] = rs.uniform(-0.2, 0.2, executor.arg_dict[name].shape)
optimizer = mx.optimizer.create(
    "adam", learning_rate=0.05, rescale_grad=1 / 8.0, wd=1e-3, param_idx2name=dict(enumerate(names))
)
updater = mx.optimizer.get_updater(optimizer)
for epoch in range(4):
    right = []
    for i in range(0, 32, 8):
        executor.arg_dict["data"][:] = X[i : i + 8]
        executor.arg_dict["softmax_label"][:] = Y[i : i + 8]
        executor.forward(is_train=True)
        executor.backward()
        for k, (weight, grad, name) in enumerate(
            zip(executor.arg_arrays, executor.grad_arrays, names)
        ):
            if name not in ("data", "softmax_label"):
                updater(k, grad, weight)
        right.append(executor.outputs[0].asnumpy()[np.arange(8), Y[i : i + 8]].mean())
    print(np.mean(right))

"""Graphs that are compared with MXNet 1.9.1: builders of (symbol, input shapes). They run under
MXNet and under plait."""


def mlp(mx):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh", name="act")
    return mx.sym.FullyConnected(net, num_hidden=3, name="fc2", no_bias=True), {"data": (4, 5)}


def convolution(mx):
    net = mx.sym.Convolution(
        mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv"
    )
    net = mx.sym.BatchNorm(net, fix_gamma=False, eps=1e-4, name="bn")
    net = mx.sym.Pooling(mx.sym.relu(net), kernel=(2, 2), stride=(2, 2), pool_type="avg")
    return mx.sym.Flatten(net), {"data": (2, 3, 6, 6)}


def classifier(mx):
    net = mx.sym.LeakyReLU(
        mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4), act_type="elu", slope=0.5
    )
    return mx.sym.SoftmaxOutput(net, name="softmax"), {"data": (5, 3)}


# alone: after a FullyConnected, MXNet's gradient of gamma is wrong (it shares memory)
def prelu(mx):
    return mx.sym.LeakyReLU(mx.sym.var("x"), act_type="prelu", name="prelu"), {"x": (3, 4)}


def arithmetic(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    return (a + b) * (a - 2) / (3 + b * b) - (1.5 - a) + 2 / (b * b + 1) - a**2 + (-b), {
        "a": (2, 3),
        "b": (2, 3),
    }


def broadcasting(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    net = mx.sym.broadcast_add(mx.sym.broadcast_mul(a, b), mx.sym.broadcast_maximum(a, b))
    return mx.sym.sum(net, axis=(0, 2), keepdims=True), {"a": (2, 1, 3), "b": (2, 4, 1)}


def shapes(mx):
    x = mx.sym.var("x")
    net = mx.sym.transpose(x.reshape((0, -1, 2)), axes=(1, 0, 2))
    net = mx.sym.slice(net, begin=(0, None), end=(2, 2)).expand_dims(axis=0).flatten()
    return mx.sym.clip(net, -0.5, 0.5), {"x": (3, 8)}


def joined(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    return mx.sym.Group(
        [mx.sym.Concat(a, b, dim=1, name="cat"), mx.sym.stack(a, b, axis=0), mx.sym.add_n(a, b, a)]
    ), {"a": (2, 3), "b": (2, 3)}


def outputs(mx):
    parts = mx.sym.split(mx.sym.var("x"), num_outputs=3, axis=1, name="parts")
    return mx.sym.sigmoid(parts[0]) * mx.sym.tanh(parts[2]) + parts[1], {"x": (2, 6)}


def embedding(mx):
    net = mx.sym.Embedding(mx.sym.var("data"), input_dim=5, output_dim=4, name="embed")
    return mx.sym.log_softmax(mx.sym.mean(net, axis=1)), {"data": (2, 3)}


def recurrent(mx):
    net = mx.sym.RNN(
        mx.sym.var("data"), state_size=3, num_layers=1, mode="lstm", name="lstm", state_outputs=True
    )
    return mx.sym.Group([net[0], net[2]]), {"data": (4, 2, 3)}


def normalised(mx):
    net = mx.sym.LayerNorm(mx.sym.var("data"), axis=-1, name="ln")
    return mx.sym.L2Normalization(mx.sym.dot(net, mx.sym.var("w"))), {"data": (4, 6), "w": (6, 3)}


def attributes(mx):
    with mx.AttrScope(ctx_group="one", __stage__="2"):
        x = mx.sym.var("x", shape=(2, 3), lr_mult=0.5, dtype="float32")
        net = mx.sym.FullyConnected(
            x, num_hidden=2, name="fc", attr={"wd_mult": "0.1", "__note__": 'a "b"\\c\n'}
        )
    with mx.name.Prefix("pre_"):
        return mx.sym.relu(net) + mx.sym.ones((2, 2)), {}


def unrolled(mx):
    h = mx.sym.zeros((2, 4))
    weight, bias, sequence = mx.sym.var("h_weight"), mx.sym.var("h_bias"), mx.sym.var("x")
    for t in range(3):
        x = mx.sym.slice_axis(sequence, axis=0, begin=t, end=t + 1)
        x = mx.sym.Reshape(x, shape=(-3, -2))
        h = mx.sym.tanh(
            mx.sym.FullyConnected(
                mx.sym.concat(x, h, dim=1), weight, bias, num_hidden=4, name=f"t{t}"
            )
        )
    return h, {"x": (3, 2, 5)}


GRAPHS = {
    f.__name__: f
    for f in (
        mlp,
        convolution,
        classifier,
        prelu,
        arithmetic,
        broadcasting,
        shapes,
        joined,
        outputs,
        embedding,
        recurrent,
        normalised,
        attributes,
        unrolled,
    )
}


def inputs(np, name, arguments, shapes):
    """Values of the arguments: the same under both frameworks."""
    rng = np.random.RandomState(sum(map(ord, name)))
    return {
        k: (
            rng.randint(0, 4, s).astype("float32")
            if (name, k) in (("embedding", "data"), ("classifier", "softmax_label"))
            else rng.uniform(-1, 1, s).astype("float32")
        )
        for k, s in zip(arguments, shapes)
    }


def record(path):
    """Writes what MXNet makes of the graphs: their JSON, outputs, gradients. Run once under MXNet:
    see the tests."""
    import mxnet as mx
    import numpy as np

    saved = {}
    for name, build in GRAPHS.items():
        with mx.name.NameManager():
            net, given = build(mx)
        arg_shapes, _, aux_shapes = net.infer_shape(**given)
        values = inputs(np, name, net.list_arguments(), arg_shapes)
        aux = {k: mx.nd.ones(s) for k, s in zip(net.list_auxiliary_states(), aux_shapes)}
        grads = {
            k: mx.nd.zeros(v.shape) for k, v in values.items() if (name, k) != ("embedding", "data")
        }
        ex = net.bind(mx.cpu(), {k: mx.nd.array(v) for k, v in values.items()}, grads, "write", aux)
        outs = ex.forward(is_train=True)
        saved[f"{name}/json"] = np.array(net.tojson())
        for i, out in enumerate(outs):
            saved[f"{name}/out{i}"] = out.asnumpy()
        ex.backward(
            None
            if name == "classifier"
            else [mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape)) for o in outs]
        )
        saved.update({f"{name}/grad/{k}": v.asnumpy() for k, v in grads.items()})
        saved.update({f"{name}/aux/{k}": v.asnumpy() for k, v in aux.items()})
        saved.update({f"{name}/predict{i}": o.asnumpy() for i, o in enumerate(ex.forward())})
    np.savez_compressed(path, **saved)

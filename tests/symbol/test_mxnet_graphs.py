"""Graphs against MXNet 1.9.1: the same JSON text, outputs, gradients and moving statistics.

tests/fixtures/graphs.npz is written by graphs.record(path), run under MXNet.
"""

from pathlib import Path

import graphs
import numpy as np
import plait as mx
import pytest

HERE = Path(__file__).parent
SAVED = np.load(HERE.parent / "fixtures" / "graphs.npz")
# node_row_ptr counts outputs that nobody sees
HIDDEN_OUTPUTS_DIFFER = {"recurrent", "normalised"}


def build(name):
    with mx.name.NameManager():
        return graphs.GRAPHS[name](mx)


def bound(name):
    net, given = build(name)
    arg_shapes, _, aux_shapes = net.infer_shape(**given)
    values = graphs.inputs(np, name, net.list_arguments(), arg_shapes)
    grads = {k: mx.nd.zeros(v.shape) for k, v in values.items() if f"{name}/grad/{k}" in SAVED}
    aux = {k: mx.nd.ones(s) for k, s in zip(net.list_auxiliary_states(), aux_shapes)}
    return net.bind(mx.cpu(), {k: mx.nd.array(v) for k, v in values.items()}, grads, "write", aux)


def head_grads(ex, name):
    return (
        None
        if name == "classifier"
        else [mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape)) for o in ex.outputs]
    )


def without_outputs(text):
    start, end = text.index('"node_row_ptr"'), text.index('"heads"')
    return text[:start] + text[end:]


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_json_is_what_mxnet_writes(name):
    ours, theirs = build(name)[0].tojson(), str(SAVED[f"{name}/json"])
    if name in HIDDEN_OUTPUTS_DIFFER:
        ours, theirs = without_outputs(ours), without_outputs(theirs)
    assert ours == theirs


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_json_round_trip(name):
    text = str(SAVED[f"{name}/json"])
    again = mx.sym.load_json(text).tojson()
    assert without_outputs(again) == without_outputs(text)


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_training_is_what_mxnet_computes(name):
    ex = bound(name)
    for i, out in enumerate(ex.forward(is_train=True)):
        np.testing.assert_allclose(out.asnumpy(), SAVED[f"{name}/out{i}"], rtol=1e-4, atol=1e-5)
    ex.backward(head_grads(ex, name))
    for k, g in ex.grad_dict.items():
        if g is not None:
            np.testing.assert_allclose(
                g.asnumpy(), SAVED[f"{name}/grad/{k}"], rtol=1e-3, atol=1e-4, err_msg=k
            )
    for k, a in ex.aux_dict.items():
        np.testing.assert_allclose(
            a.asnumpy(), SAVED[f"{name}/aux/{k}"], rtol=1e-4, atol=1e-5, err_msg=k
        )
    for i, out in enumerate(ex.forward()):
        np.testing.assert_allclose(out.asnumpy(), SAVED[f"{name}/predict{i}"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_monitored_run_is_the_same(name):
    """Operator by operator, as a monitor makes it run, gives what the programs give."""
    plain, watched = bound(name), bound(name)
    names = []
    watched.set_monitor_callback(lambda n, a: names.append((n, a.shape)))
    for a, b in zip(plain.forward(is_train=True), watched.forward(is_train=True)):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-6, atol=1e-7)
    plain.backward(head_grads(plain, name))
    watched.backward(head_grads(watched, name))
    for k, g in plain.grad_dict.items():
        if g is not None:
            np.testing.assert_allclose(
                watched.grad_dict[k].asnumpy(), g.asnumpy(), rtol=1e-5, atol=1e-6
            )
    assert {n for n, _ in names} >= set(build(name)[0].list_outputs())

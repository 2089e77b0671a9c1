"""group2ctx: layers of a bound graph on several devices give what one device gives."""

import numpy as np
import plait as mx
import pytest
from plait.graph.program import Program

GROUPS = {"one": mx.cpu(1), "two": mx.cpu(2)}


def network():
    with mx.AttrScope(ctx_group="one"):
        h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc1")
        h = mx.sym.BatchNorm(h, name="bn", fix_gamma=False)
        h = mx.sym.Activation(h, act_type="tanh")
    with mx.AttrScope(ctx_group="two"):
        a, b = (mx.sym.FullyConnected(h, num_hidden=4, name=n) for n in ("fc2", "fc3"))
        h = a + b
    with mx.AttrScope(ctx_group="one"):
        h = mx.sym.FullyConnected(h, num_hidden=3, name="fc4")
        return mx.sym.SoftmaxOutput(h, name="softmax")


def filled(executor):
    values = np.random.RandomState(0)
    for name, array in executor.arg_dict.items():
        array[:] = [0, 1, 2, 0] if name == "softmax_label" else values.randn(*array.shape)
    return executor


def results(executor, steps=4):
    for _ in range(steps):
        executor.forward(is_train=True)
        executor.backward()
    return [a.asnumpy() for a in [*executor.outputs, *executor.grad_arrays, *executor.aux_arrays]]


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_same_results_as_one_device(grad_req):
    plain = filled(network().simple_bind(mx.cpu(0), grad_req, data=(4, 5)))
    placed = filled(network().simple_bind(mx.cpu(0), grad_req, data=(4, 5), group2ctx=GROUPS))
    for a, b in zip(results(placed), results(plain)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    outs = [e.forward()[0].asnumpy() for e in (placed, plain)]
    np.testing.assert_allclose(*outs, rtol=1e-5)


def test_arrays_are_placed_where_they_are_used():
    executor = network().simple_bind(mx.cpu(0), data=(4, 5), group2ctx=GROUPS)
    devices = {name: a.context for name, a in executor.arg_dict.items()}
    assert devices.pop("fc2_weight") == devices.pop("fc3_bias") == mx.cpu(2)
    assert devices.pop("fc2_bias") == devices.pop("fc3_weight") == mx.cpu(2)
    assert set(devices.values()) == {mx.cpu(1)} == {executor.outputs[0].context}
    assert {a.context for a in executor.aux_arrays} == {mx.cpu(1)}
    assert executor.grad_dict["fc2_weight"].context == mx.cpu(2)


def test_given_arrays_may_be_on_other_devices():
    plain = filled(network().simple_bind(mx.cpu(0), data=(4, 5)))
    expected = results(plain, 1)
    again = filled(network().simple_bind(mx.cpu(0), data=(4, 5)))
    grads = [mx.nd.zeros(a.shape) for a in again.arg_arrays]
    placed = network().bind(
        mx.cpu(0), again.arg_arrays, grads, "write", again.aux_arrays, group2ctx=GROUPS
    )
    for a, b in zip(results(placed, 1), expected):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_monitor_sees_every_operator():
    executor = filled(network().simple_bind(mx.cpu(0), data=(4, 5), group2ctx=GROUPS))
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.context}))
    monitored = results(executor, 1)
    assert seen["fc2_output"] == mx.cpu(2) and seen["softmax_output"] == mx.cpu(1)
    for a, b in zip(monitored, results(filled(network().simple_bind(data=(4, 5))), 1)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_segments_are_few():
    executor = filled(network().simple_bind(mx.cpu(0), data=(4, 5), group2ctx=GROUPS))
    executor.forward(is_train=True)
    (mode,) = executor._modes.values()
    devices = [part.device for part in mode.serving.program.parts]
    assert devices == [mx.cpu(1), mx.cpu(2), mx.cpu(1)]


def test_groups_on_the_same_device_are_one_program():
    executor = network().simple_bind(
        mx.cpu(0), data=(4, 5), group2ctx={"one": mx.cpu(0), "other": mx.cpu(3)}
    )
    executor.forward()
    (mode,) = executor._modes.values()
    assert isinstance(mode.serving.program, Program)

"""The runner: forward and gradient programs of a graph, without arrays."""

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.graph import tiers
from plait.graph.graph import Builder, variable
from plait.graph.runner import ROWS, Gradient, MissingHeadGradient, Signature
from plait.kernels.spec import spec

F = Builder()
CPU = mx.cpu()


def signature(requests=("null", "write"), **kwargs):
    x, w = (variable(n, F._zeros(shape=(3, 3)).type) for n in "xw")
    y = F.tanh(F.dot(x, w))
    outputs = [F.square(y), F.BlockGrad(y)]
    specs = [spec((3, 3), "float32", CPU)] * 2
    graph = outputs, [x, w], ()
    return Signature("f", lambda _: graph, specs, CPU, requests=requests, data=[0], **kwargs)


def arrays_of(back: Gradient, **known):
    return [known[kind][place[-1]] for kind, *place in back.sources]


@pytest.mark.parametrize("tier", [0, 1])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_gradients_are_those_of_the_graph(tier, request_):
    forward = signature(("null", request_)).forward(tier)
    x, w, before, dy = (np.random.RandomState(i).rand(3, 3).astype("float32") for i in range(4))
    inputs = [nd.array(x), nd.array(w)]
    made = forward.program.run(inputs)
    back = forward.gradient((True, None))  # nothing reads the second one
    grads = {1: nd.array(before)}
    known = arrays_of(back, input=inputs, saved=made, head_grad=[nd.array(dy)], grad=grads)
    (got,) = back.program.run(known, [nd.zeros((3, 3))])
    x, w, before, dy = (a.astype("float64") for a in (x, w, before, dy))
    y = np.tanh(x @ w)
    want = x.T @ (dy * 2 * y * (1 - y * y)) + (before if request_ == "add" else 0)
    assert back.written == [1] and back.tier == tier
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5)


def test_a_head_gradient_that_is_read_must_be_given():
    forward = signature().forward(0)
    with pytest.raises(MissingHeadGradient) as error:
        forward.gradient((None, None))
    assert error.value.index == 0 and not forward.gradients
    ones = forward.gradient((False, None))
    assert not any(kind == "head_grad" for kind, *_ in ones.sources)


def test_rows_of_a_gradient_come_after_the_dense_ones():
    x, e = variable("x", F._zeros(shape=(2,)).type), variable("e", F._zeros(shape=(5, 3)).type)
    out = F.Embedding(x, e, input_dim=5, output_dim=3)
    specs = [spec((2,), "float32", CPU), spec((5, 3), "float32", CPU)]
    graph = [out], [x, e], ()
    found = Signature("f", lambda _: graph, specs, CPU, requests=["write", ROWS], data=[0])
    back = found.forward(0).gradient((True,))
    assert back.written == [0] and back.rows == [(1, [(1, 2)])]


def test_a_better_forward_has_the_gradients_in_use():
    found = signature()
    found.begin()
    found.serving.gradient((True, None))
    made = found.build(1)
    assert list(made.gradients) == [(True, None)] and made.gradients[True, None].tier == 1


def test_names_tell_what_is_computed():
    plain, again = signature().structure(), signature().structure()
    assert plain == again
    others = [
        signature(("null", "add")),
        signature(recompute=True),
        signature(mode=(True,)),
    ]
    assert len({plain, *(s.structure() for s in others)}) == 4


def test_what_a_resumed_run_knows_is_there_when_the_compiler_begins(monkeypatch):
    """Which inputs are stable decides what is compiled."""
    first, seen = signature(("null", "null")), []
    first.begin()
    counts = {name: getattr(first, name) for name in first.counted}
    counts.update(hits=2, due=8, change_at=8, queued=True, stable=[1])
    submit = lambda job: seen.append((job.stable, job.due)) or False
    monkeypatch.setattr(tiers._compiler, "submit", submit)
    signature(("null", "null")).adopt(counts)
    assert seen == [([1], 8)]

"""Shapes that depend on values, in hybridized blocks and executors. Numbers are MXNet's."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd, sym


class Chosen(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(3, use_bias=False, flatten=False, weight_initializer="ones")
            self.last = gluon.nn.Dense(1, use_bias=False, in_units=3, weight_initializer="ones")

    def hybrid_forward(self, F, x, mask):
        y = F.contrib.boolean_mask(self.dense(x), mask)
        return self.last(y) * 3, y


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
def test_hybridized_block(flags, tmp_path):
    net = Chosen()
    net.initialize()
    net.hybridize(**flags)
    x = nd.arange(12).reshape((4, 3))
    x.attach_grad()
    for mask, want in (([1, 0, 0, 1], [27, 270]), ([0, 1, 1, 1], [108, 189, 270])):
        with autograd.record():
            y, z = net(x, nd.array(mask))
        autograd.backward([y, z])
        assert y.asnumpy().ravel().tolist() == want
        assert z.shape == (len(want), 3)
        assert (x.grad.asnumpy() == 12 * np.array(mask)[:, None]).all()
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data0", "data1"], str(tmp_path / "net-0000.params")
    )
    assert again(x, nd.array([1, 0, 0, 1]))[0].asnumpy().ravel().tolist() == [27, 270]


def test_executor():
    s = sym.contrib.boolean_mask(sym.var("x") * 2, sym.var("m")).sum(axis=1)
    x, mask, grad = nd.arange(12).reshape((4, 3)), nd.array([1, 0, 0, 1]), nd.zeros((4, 3))
    assert s.infer_shape(x=(4, 3), m=(4,)) == (None, None, None)
    assert s.eval(x=x, m=mask)[0].asnumpy().tolist() == [6, 60]
    exe = s.bind(mx.cpu(), {"x": x, "m": mask}, {"x": grad}, {"x": "add", "m": "null"})
    for _ in range(2):
        assert exe.forward(is_train=True)[0].asnumpy().tolist() == [6, 60]
        exe.backward(nd.array([1, 10]))
    assert grad.asnumpy().tolist() == [[4] * 3, [0] * 3, [0] * 3, [40] * 3]
    assert exe.forward(m=nd.array([0, 1, 1, 1]))[0].shape == (3,)
    assert x._tape is None

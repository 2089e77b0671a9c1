"""Memory layouts: tags, physical shapes, and conversion there and back."""

import numpy as np
import pytest
from plait import cpu
from plait.graph.graph import Builder, Node, Value, variable
from plait.graph.program import lower
from plait.kernels.layouts import parse, physical_shape, to_physical, to_plain
from plait.kernels.record import Type, lookup
from plait.ndarray import ndarray

F = Builder()
TAGS = ["abcd", "acdb", "aBcd8b", "ABcd8b8a", "Abcd16a", "ABcd4a8b2a"]


@pytest.mark.parametrize("tag", TAGS)
def test_there_and_back(tag):
    values = np.arange(5 * 11 * 2 * 3, dtype=np.float32).reshape(5, 11, 2, 3)
    memory = to_physical(values, tag)
    assert memory.shape == physical_shape(values.shape, tag)
    assert np.array_equal(to_plain(memory, values.shape, tag), values)
    assert memory.sum() == values.sum()


def test_a_blocked_axis_lies_innermost():
    values = np.arange(2 * 16 * 3, dtype=np.float32).reshape(2, 16, 3, 1)
    memory = to_physical(values, "aBcd8b")
    assert memory.shape == (2, 2, 3, 1, 8)
    assert np.array_equal(memory[1, 1, 2, 0], values[1, 8:, 2, 0])


@pytest.mark.parametrize("tag", ["", "abd", "aBcd", "abcd8b", "a b"])
def test_a_wrong_tag_raises(tag):
    with pytest.raises(ValueError, match="layout"):
        parse(tag)


def test_references_run_on_blocked_values():
    x = variable("x", Type((2, 11, 3, 3)))
    blocked = F._reorder(x, layout="aBcd8b")
    node = Node(lookup("tanh"), {}, [blocked], "", (blocked.type,))
    (out,) = lower([F._reorder(Value(node), layout="")], [x], cpu()).run(
        [a := ndarray.from_memory(np.random.default_rng(0).normal(size=x.shape).astype("f"))]
    )
    assert np.allclose(out.asnumpy(), np.tanh(a.asnumpy()), atol=1e-6)

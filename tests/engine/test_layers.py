"""The layer that a thread is in: nested calls of blocks, exceptions, threads, reference counts."""

import sys
import threading

import plait as mx
import pytest
from plait import nd
from plait.engine import _layer, layers, profiler
from plait.gluon import nn


class Leaf(mx.gluon.Block):
    """Computes; with fails it raises after that."""

    fails = False

    def forward(self, x):
        y = x + 1
        if self.fails:
            raise KeyError("from the leaf")
        return y


class Tree(mx.gluon.Block):
    """One leaf before its own operator, the other after it."""

    def __init__(self):
        super().__init__()
        self.left, self.right = Leaf(), Leaf()

    def forward(self, x):
        try:
            x = self.left(x)
        except KeyError:
            pass
        return self.right(x * 2)


class Countdown(mx.gluon.Block):
    """Calls itself."""

    def forward(self, x, n=2):
        return self(x - 1, n - 1) if n else x - 1


def names_of(function):
    """(operator, layer) of what the function pushes, in this order."""
    with profiler.recording() as spans:
        function()
        nd.waitall()
    ops = sorted((s for s in spans if s.category == "operator"), key=lambda s: s.seq)
    return [(s.name, s.args.get("layer")) for s in ops]


TREE = [("add", "left (Leaf)"), ("mul", "Tree"), ("add", "right (Leaf)")]


def short(names):
    return [(op.strip("_").partition("_")[0].replace("plus", "add"), at) for op, at in names]


@pytest.fixture
def x():
    made = nd.ones((2,))
    nd.waitall()
    return made


@pytest.mark.parametrize("fails", [False, True])
def test_each_operator_has_the_innermost_block_also_after_an_exception(x, fails):
    tree = Tree()
    tree.left.fails = fails
    for _ in range(2):  # then it knows its place
        assert short(names_of(lambda: tree(x))) == TREE
    assert layers.current() is None


def test_an_exception_leaves_all_layers(x):
    tree = Tree()
    tree.right.fails = True

    def run():
        with pytest.raises(KeyError, match="from the leaf"):
            tree(x)
        x + 1

    assert short(names_of(run)) == [*TREE, ("add", None)]


def test_a_block_is_where_it_was_called(x):
    tree = Tree()

    class Other(mx.gluon.Block):
        def __init__(self):
            super().__init__()
            self.shared = tree.left

        def forward(self, x):
            return self.shared(x)

    other = Other()
    for _ in range(2):
        assert short(names_of(lambda: tree(x))) == TREE
        assert short(names_of(lambda: other(x))) == [("add", "shared (Leaf)")]
        assert short(names_of(lambda: tree.left(x))) == [("add", "Leaf")]
    assert [at for _, at in names_of(lambda: Countdown()(x))] == ["Countdown"] * 3


def test_each_thread_has_a_layer_of_its_own(x):
    inside, done, found = threading.Event(), threading.Event(), []

    class Waits(Leaf):
        def forward(self, x):
            inside.set()
            assert done.wait(60)
            found.append(layers.current())
            return super().forward(x)

    def run():
        thread = threading.Thread(target=Waits(), args=(x,))
        thread.start()
        assert inside.wait(60)
        assert layers.current() is None
        Tree()(x)
        done.set()
        thread.join()

    assert short(names_of(run)) == [*TREE, ("add", "Waits")] and found == ["Waits"]


def test_calls_keep_no_references(x):
    tree = Tree()
    layers.watch(True)
    try:
        tree(x)
        place = tree.left._place
        assert place.name == "left (Leaf)" and place.above is tree._place
        before = [sys.getrefcount(o) for o in (place, tree._place, tree, tree.left, x, None)]
        for tree.left.fails in [False, True] * 50:
            tree(x)
        after = [sys.getrefcount(o) for o in (place, tree._place, tree, tree.left, x, None)]
    finally:
        layers.watch(False)
    assert after[:-1] == before[:-1] and abs(after[-1] - before[-1]) < 50


def test_a_layer_is_entered_until_the_one_before_is():
    assert layers.enter(layers.named("first")) is None
    assert layers.enter(layers.named("second")) is layers.named("first")
    assert layers.current() == "second"
    assert layers.enter(None) is layers.named("second") and layers.current() is None


@pytest.mark.parametrize(
    "name, arguments",
    [("enter", ["x"]), ("enter", [()]), ("call", []), ("call", [nn.Dense(1), 3]), ("bind", ["x"])],
)
def test_wrong_arguments(name, arguments):
    with pytest.raises(TypeError):
        getattr(_layer, name)(*arguments)
    assert layers.current() is None


def test_a_block_without_a_place_of_its_own_raises():
    class Odd:
        _place = None

        def _find_place(self, above):
            return "nowhere"

    with pytest.raises(TypeError, match="a Layer is needed here"):
        _layer.call(Odd(), ())
    with pytest.raises(AttributeError):
        _layer.call(object(), ())
    assert layers.current() is None

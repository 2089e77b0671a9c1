"""mx.registry: classes by name, as metrics and initializers use it."""

import plait as mx
import pytest
from plait import registry


class Shape:
    def __init__(self, size=1):
        self.size = size


create = registry.get_create_func(Shape, "shape")
register = registry.get_register_func(Shape, "shape")


@register
@registry.get_alias_func(Shape, "shape")("round", "disc")
class Circle(Shape):
    pass


def test_names_aliases_and_json_make_objects():
    assert isinstance(create("Circle"), Circle)
    assert create("disc", size=3).size == 3
    assert create('["circle", {"size": 5}]').size == 5
    assert create('{"shape": "circle", "size": 7}').size == 7
    assert create(shape="round", size=2).size == 2
    mine = Circle()
    assert create(mine) is mine


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: create("circel"), "did you mean 'circle'"),
        (lambda: create(5), "must be a name"),
        (lambda: create(Circle(), 3), "takes no arguments"),
        (lambda: register(int), "must derive from Shape"),
    ],
)
def test_mistakes_are_reported(call, text):
    with pytest.raises(mx.MXNetError, match=text):
        call()


def test_the_registry_is_a_copy():
    found = registry.get_registry(Shape)
    assert set(found) == {"circle", "round", "disc"}
    found.clear()
    assert "circle" in registry.get_registry(Shape)


def test_metrics_and_initializers_are_in_it():
    assert registry.get_registry(mx.metric.EvalMetric)["acc"] is mx.metric.Accuracy
    assert registry.get_registry(mx.init.Initializer)["zeros"] is mx.init.Zero

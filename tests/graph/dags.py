"""Random typed graphs for property tests: operators over shared values, and their evaluation node
by node."""

from hypothesis import strategies as st
from plait import cpu, nd
from plait.graph.graph import Builder, variable
from plait.ndarray.interpreter import run_nodes, run_plan

SHAPES = ((2, 3), (3, 2), (6,), (1, 3), (2, 1), (1,))
SCALARS = (0.0, -0.0, 1.0, -1.0, 2.5)
F = Builder(train=True)


def _one(name, **attrs):
    return lambda draw, x: getattr(F, name)(x, **attrs)


def _scalar(name):
    return lambda draw, x: getattr(F, name)(x, scalar=draw(st.sampled_from(SCALARS)))


def _same_size(draw, x):
    size = x.shape[0] * (x.shape[1] if len(x.shape) > 1 else 1)
    shapes = [s for s in SHAPES if size == s[0] * (s[1] if len(s) > 1 else 1)]
    return F.Reshape(x, shape=draw(st.sampled_from(shapes or [x.shape])))


def _dropout(draw, x):
    return F.Dropout(x, p=draw(st.sampled_from((0.0, 0.5))))


UNARY = (
    *map(
        _one,
        (
            "negative",
            "tanh",
            "sigmoid",
            "relu",
            "square",
            "_copy",
            "BlockGrad",
            "zeros_like",
            "ones_like",
            "exp",
            "transpose",
            "Flatten",
            "abs",
            "add_n",
        ),
    ),
    *map(
        _scalar,
        (
            "_mul_scalar",
            "_plus_scalar",
            "_minus_scalar",
            "_div_scalar",
            "_rminus_scalar",
            "_maximum_scalar",
        ),
    ),
    _one("sum", axis=0, keepdims=True),
    _one("Cast", dtype="float32"),
    _same_size,
    _same_size,
)
BINARY = ("broadcast_add", "broadcast_mul", "broadcast_sub", "broadcast_maximum", "broadcast_div")
SOURCES = ("_zeros", "_ones")


def _fits(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1]))


@st.composite
def graphs(draw, random=False, max_nodes=25):
    """(outputs, variables): outputs may be variables, views, constants, or the same value twice."""
    variables = [
        variable(f"x{i}", _type(draw(st.sampled_from(SHAPES))))
        for i in range(draw(st.integers(1, 3)))
    ]
    values = list(variables)
    for _ in range(draw(st.integers(1, max_nodes))):
        kind = draw(st.integers(0, 9))
        x = values[draw(st.integers(0, len(values) - 1))]
        if kind == 0:
            made = getattr(F, draw(st.sampled_from(SOURCES)))(shape=draw(st.sampled_from(SHAPES)))
        elif kind <= 4:
            others = [v for v in values if _fits(v.shape, x.shape)]
            made = getattr(F, draw(st.sampled_from(BINARY)))(x, draw(st.sampled_from(others)))
        elif kind == 5 and random:
            made = _dropout(draw, x)
        elif kind == 6:
            made = F.split(x, num_outputs=x.shape[0], axis=0)
            values.extend(made if isinstance(made, list) else [made])
            continue
        else:
            made = draw(st.sampled_from(UNARY))(draw, x)
        values.append(made)
    return draw(st.lists(st.sampled_from(values), min_size=1, max_size=4)), variables


def _type(shape):
    return variable("x", F._zeros(shape=shape).type).type


def draw_arrays(variables, seed, special=False):
    """Arrays for variables: normal numbers; special: mixed with NaN, infinities and both zeros."""
    import numpy as np

    rng = np.random.default_rng(seed)
    arrays = []
    for v in variables:
        x = rng.normal(size=v.shape).astype("float32")
        if special:
            odd = rng.choice(
                np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], "float32"), size=v.shape
            )
            x = np.where(rng.random(v.shape) < 0.4, odd, x).astype("float32")
        arrays.append(nd.array(x))
    return arrays


def evaluate(outputs, variables, arrays):
    """The outputs, each operator called by itself: what every pass and every program must give, bit
    for bit."""
    known = dict(zip(variables, arrays))
    return run_nodes(outputs, known, lambda node, inputs: run_plan(node, inputs, cpu()))


def bits(array):
    """The bytes of an array; NaNs of any sign and payload are one, all else is told apart, -0.0
    from 0.0 too."""
    import numpy as np

    x = array.asnumpy()
    return x.shape, str(x.dtype), np.where(np.isnan(x), np.float32("nan"), x).tobytes()

"""What one call of mx.np is made of: one kernel where it can be, native, with NumPy's results."""

import numpy as np
import plait as mx
import pytest
from plait import autograd
from plait.kernels import backend
from plait.kernels.record import lookup
from plait.ndarray import fronts
from plait.ndarray.fronts import Steps
from plait.ndarray.invoke import invoke

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")
DRAW = np.random.default_rng(3)
NATIVE = ("float32", "float64", "int32", "int64", "int8", "uint8", "bool")


def draw(shape, dtype):
    x = DRAW.normal(size=shape) * 4
    return (
        (x > 0) if dtype == "bool" else x.astype(dtype) if dtype[0] != "u" else abs(x).astype(dtype)
    )


def steps(name, *inputs, **attrs):
    """The plans that a call of a front runs."""
    op = lookup(name)
    found = fronts._find(op, inputs, op.parse(attrs), inputs[0].context)
    assert isinstance(found, Steps), found
    return [step.plan for step in found.steps]


def has_kernel(plan):
    ins, outs = [s.type for s in plan.in_specs], [s.type for s in plan.out_specs]
    table = backend.of(mx.cpu()).kernels
    return table.choose(plan.op, ins, outs, plan.attrs) is not None


SHAPES = [((3, 5), (3, 5)), ((2, 1, 7), (3, 1)), ((600,), (1,)), ((4, 1100), (1100,))]
REDUCED = [((5, 7), None), ((600, 6), 0), ((9, 1100), 0), ((9, 1100), 1)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["greater", "equal", "less_equal", "logical_xor"])
def test_a_comparison_is_one_native_loop(name, dtype):
    for first, second in SHAPES:
        a, b = draw(first, dtype), draw(second, dtype)
        x, y = mx.np.array(a), mx.np.array(b)
        (plan,) = steps(f"_npi_{name}", x, y)
        assert has_kernel(plan)
        made = getattr(mx.np, name)(x, y)
        assert made.dtype == bool
        np.testing.assert_array_equal(made.asnumpy(), getattr(np, name)(a, b))
        number = getattr(mx.np, name)(x, 1.5).asnumpy()
        np.testing.assert_array_equal(number, getattr(np, name)(a, 1.5))


@pytest.mark.parametrize("first", NATIVE)
@pytest.mark.parametrize("second", ["float32", "float64"])
def test_operands_of_mixed_dtypes_are_cast_inside_the_loop(first, second):
    for shapes in SHAPES:
        for left, right in ((first, second), (second, first)):
            a, b = draw(shapes[0], left), draw(shapes[1], right)
            x, y = mx.np.array(a), mx.np.array(b)
            (plan,) = steps("_npi_multiply", x, y)
            assert has_kernel(plan)
            wide = "float64" if "float64" in (left, right) else "float32"
            want = a.astype(wide) * b.astype(wide)
            assert (x * y).dtype == wide
            np.testing.assert_allclose((x * y).asnumpy(), want, rtol=1e-6)


def test_whole_numbers_divided_are_one_loop():
    a, b = np.array([7, -7, 1], "int32"), np.array([2, 2, 0], "int32")
    x, y = mx.np.array(a), mx.np.array(b)
    (plan,) = steps("_npi_true_divide", x, y)
    assert has_kernel(plan)
    np.testing.assert_allclose((x / y).asnumpy(), np.array([3.5, -3.5, np.inf], "float32"))


def test_an_input_that_is_read_twice_is_one_step():
    (plan,) = steps("_npi_isnan", mx.np.array([1.0, float("nan")]))
    assert has_kernel(plan)
    assert mx.np.isnan(mx.np.array([1.0, float("nan")])).asnumpy().tolist() == [False, True]


def test_gradients_go_through_casts_inside_a_loop():
    a, b = draw((2, 3), "float32"), draw((2, 3), "int32")
    x, y = mx.np.array(a), mx.np.array(b)
    x.attach_grad()
    with autograd.record():
        total = ((x * y) * (x * y) * (x > 0)).sum()
        (dx,) = autograd.grad(total, [x], create_graph=True)
        again = dx.sum()
    again.backward()
    np.testing.assert_allclose(dx.asnumpy(), 2 * a * b * b * (a > 0), rtol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), 2.0 * b * b * (a > 0), rtol=1e-5)


@pytest.mark.parametrize("dtype", NATIVE[2:])
@pytest.mark.parametrize("shape, axis", REDUCED)
def test_reductions_of_whole_numbers_are_native(dtype, shape, axis):
    a = draw(shape, dtype)
    x = mx.np.array(a)
    for name in ("sum", "max", "min", "any", "all", "argmax", "argmin"):
        front = f"_npi_{name}" if name.startswith("arg") else f"_np_{name}"
        assert all(map(has_kernel, steps(front, x, axis=axis)))
        made = getattr(mx.np, name)(x, axis=axis).asnumpy()
        if name == "sum" and dtype != "bool":
            want = np.sum(a, axis=axis, dtype=dtype)
        else:
            want = getattr(np, name)(a, axis=axis)
        np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("dtype", NATIVE[:-1])
@pytest.mark.parametrize("rows, n", [(70, 1), (70, 7), (3, 33), (67, 100), (2, 9000), (2, 35000)])
def test_extremes_and_sums_of_rows(rows, n, dtype):
    a = draw((rows, n), dtype)
    a[-1] = a[-1, 0]  # of equal elements the first
    x = mx.np.array(a, dtype=dtype)
    for name in ("max", "min", "argmax", "argmin"):
        made = getattr(mx.np, name)(x, axis=1).asnumpy()
        np.testing.assert_array_equal(made, getattr(np, name)(a, axis=1))
    want = np.sum(a, axis=1, dtype="float64" if dtype.startswith("f") else dtype)
    np.testing.assert_allclose(mx.np.sum(x, axis=1).asnumpy(), want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("n", [2, 63, 64, 65, 1000, 5000, 20000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_with_nan_and_infinities(n, dtype):
    a = draw((4, n), dtype)
    a[1, n // 2], a[2, n - 1], a[3, 0] = np.nan, np.inf, -np.inf
    for v in (a, -a, np.ascontiguousarray(a.T)):
        for name in ("max", "min", "argmax", "argmin"):
            for axis in (0, 1):
                made = getattr(mx.np, name)(mx.np.array(v), axis=axis).asnumpy()
                np.testing.assert_array_equal(made, getattr(np, name)(v, axis=axis))


@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize(
    "rows, n", [(3, n) for n in (1, 64, 65, 129, 1000, 20000)] + [(37, n) for n in (2, 9, 100, 600)]
)
def test_sorts_of_all_lengths(rows, n, dtype):
    a = draw((rows, n), dtype)
    if dtype.startswith("float"):
        a[:, :: max(n // 3, 1)] = np.nan
    x = mx.np.array(a)
    np.testing.assert_array_equal(mx.np.sort(x, axis=1).asnumpy(), np.sort(a, axis=1))
    stable = np.argsort(a, axis=1, kind="stable")
    np.testing.assert_array_equal(mx.np.argsort(x, axis=1).asnumpy(), stable)
    down = mx.nd.sort(x.as_nd_ndarray(), is_ascend=False).asnumpy().astype("float64")
    np.testing.assert_array_equal(down, -np.sort(-a.astype("float64"), axis=1))
    beside = mx.np.array(np.ascontiguousarray(a.T), dtype=dtype)
    np.testing.assert_array_equal(mx.np.sort(beside, axis=0).asnumpy(), np.sort(a, axis=1).T)
    np.testing.assert_array_equal(mx.np.argsort(beside, axis=0).asnumpy(), stable.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_and_places(dtype):
    a = draw((50, 3), dtype)
    mask = a[:, 0] > 0
    x = mx.nd.array(a, dtype=dtype)
    rows = mx.nd.contrib.boolean_mask(x, mx.nd.array(mask, dtype="bool")).asnumpy()
    np.testing.assert_array_equal(rows, a[mask])
    count = int(invoke(lookup("_count_nonzero"), [x], {}).asscalar())
    assert count == np.count_nonzero(a)
    places = invoke(lookup("_places"), [x], {"count": count}).asnumpy()
    np.testing.assert_array_equal(places, np.stack(np.nonzero(a)))


@pytest.mark.parametrize("shape", [(8, 8), (70, 9), (129, 200), (3, 65)])
def test_bytes_are_transposed(shape):
    a = DRAW.integers(0, 255, shape).astype("uint8")
    np.testing.assert_array_equal(mx.nd.array(a, dtype="uint8").T.asnumpy(), a.T)

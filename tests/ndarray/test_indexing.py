"""Indexing and assignment against NumPy, views, gradients through every kind of key, bad keys."""

import numpy as np
import plait as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plait import nd
from plait.kernels.record import REGISTRY, lookup
from plait.ndarray import autograd, backward
from plait.ndarray.invoke import invoke

A = np.arange(24, dtype="float32").reshape(2, 3, 4)


def as_numpy_key(key):
    def plain(k):
        return (
            k.asnumpy().astype(int)
            if isinstance(k, nd.NDArray)
            else np.array(k, int)
            if type(k) is list
            else k
        )

    return tuple(map(plain, key)) if type(key) is tuple else plain(key)


def element(array):
    """NumPy's 0-d result as MXNet shows it."""
    return np.reshape(array, (1,)) if np.ndim(array) == 0 else array


@st.composite
def keys(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    block = draw(st.sampled_from([(2,), (3,), (2, 2), (1,)]))
    used = draw(st.integers(0, len(shape)))
    dots = draw(st.none() | st.integers(0, used))
    key, sizes = (
        [],
        shape[:used] if dots is None else shape[:dots] + shape[len(shape) - (used - dots) :],
    )
    for i, n in enumerate(sizes):
        # NumPy lets an empty ... part index arrays; MXNet does not
        if i == dots and used < len(shape):
            key.append(Ellipsis)
        kind = draw(st.sampled_from(["int", "slice", "slice", "list", "numpy", "nd", "none"]))
        if kind == "int":
            key.append(draw(st.integers(-n, n - 1)))
        elif kind in ("slice", "none"):
            if kind == "none":
                key.append(None)
            bound = st.none() | st.integers(-n - 1, n + 1)
            key.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2]))))
        else:
            size = draw(st.sampled_from([block, block[-1:], (1,)]))
            values = draw(
                st.lists(
                    st.integers(-n, n - 1), min_size=int(np.prod(size)), max_size=int(np.prod(size))
                )
            )
            values = np.array(values).reshape(size)
            key.append(
                {
                    "list": values.tolist,
                    "numpy": lambda v=values: v,
                    "nd": lambda v=values: nd.array(v),
                }[kind]()
            )
    return shape, tuple(key)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(keys())
def test_any_key_reads_and_writes_as_numpy_does(case):
    shape, key = case
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    x = nd.array(values)
    expected = element(values[as_numpy_key(key)])
    got = x[key]
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.asnumpy(), expected)
    new = 100 + np.arange(expected.size, dtype="float32").reshape(expected.shape)
    for value in (7.5, new, nd.array(new) if new.size else 1.0):
        x, wanted = nd.array(values), values.copy()
        x[key] = value
        wanted[as_numpy_key(key)] = (
            value.asnumpy().reshape(values[as_numpy_key(key)].shape)
            if isinstance(value, nd.NDArray)
            else (
                np.reshape(value, values[as_numpy_key(key)].shape)
                if isinstance(value, np.ndarray)
                else value
            )
        )
        picked = values[as_numpy_key(key)]
        # of equal places NumPy promises no winner
        if len(np.unique(picked)) == picked.size:
            np.testing.assert_array_equal(x.asnumpy(), wanted)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(keys())
def test_gradient_through_any_key(case):
    shape, key = case
    x = nd.array(np.arange(np.prod(shape)).reshape(shape))
    x.attach_grad()
    with autograd.record():
        y = x[key]
        z = y * y
    if y.size == 0:
        return
    z.backward()
    places = np.arange(x.size).reshape(shape)[as_numpy_key(key)]
    counts = np.bincount(places.reshape(-1), minlength=x.size).reshape(shape)
    np.testing.assert_array_equal(x.grad.asnumpy(), 2 * counts * x.asnumpy())


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(0, 2),
        slice(1, 2),
        (0, 1),
        (1, slice(1, 3)),
        (0, 1, 2),
        Ellipsis,
        (slice(None), slice(None)),
        (None, 1),
        (slice(1, 2), 0, slice(1, 3)),
    ],
)
def test_contiguous_parts_are_views(key):
    x = nd.array(A)
    part = x[key]
    part[:] = -1
    wanted = A.copy()
    wanted[key] = -1
    np.testing.assert_array_equal(x.asnumpy(), wanted)


@pytest.mark.parametrize(
    "key", [(slice(None), 0), slice(None, None, -1), (0, slice(None), slice(0, 2)), [0, 1]]
)
def test_other_parts_are_copies(key):
    x = nd.array(A)
    x[key][:] = -1
    np.testing.assert_array_equal(x.asnumpy(), A)


def test_views_of_views_and_reshape_share_memory():
    x = nd.array(A)
    x.reshape((6, 4))[2:4][1][1:3] = 50
    assert (x.asnumpy()[1, 0] == [12, 50, 50, 15]).all()
    x[1][:] = x[0]
    np.testing.assert_array_equal(x.asnumpy()[1], A[0])
    x = nd.array(np.arange(5))
    x[1:] = x[:-1]  # overlapping parts
    np.testing.assert_array_equal(x.asnumpy(), [0, 0, 1, 2, 3])


def test_elements_have_shape_1_and_booleans_are_integers():
    x = nd.array(A)
    assert x[0, 1, 2].shape == (1,) and nd.arange(3)[1].shape == (1,)
    assert x[()].shape == x.shape and nd.array(3.0)[()].shape == ()
    np.testing.assert_array_equal(x[True].asnumpy(), A[1])
    np.testing.assert_array_equal(x[[True, False]].asnumpy(), A[[1, 0]])
    np.testing.assert_array_equal(x[np.array([True, False])].asnumpy(), A[[1, 0]])
    with pytest.raises(ValueError, match="boolean"):
        x[nd.array([0, 1], dtype="bool")]


def test_an_ellipsis_for_nothing_does_not_part_index_arrays():
    assert nd.zeros((2, 3, 4, 5))[:, 0, ..., 0, [0, 0, 1]].shape == (2, 3)


def test_assignment_broadcasts_and_converts():
    x = nd.array(A)
    x[:, 1] = [1, 2, 3, 4]
    x[0] = nd.array([[5], [6], [7]], dtype="int32")
    x[1, :, ::2] = np.float64(9)
    wanted = A.copy()
    wanted[:, 1] = [1, 2, 3, 4]
    wanted[0] = [[5], [6], [7]]
    wanted[1, :, ::2] = 9
    np.testing.assert_array_equal(x.asnumpy(), wanted)
    n = nd.zeros((3,), dtype="int32")
    n[:] = 2.7
    n[1:] = nd.array([3.9, -3.9])
    assert n.asnumpy().tolist() == [2, 3, -3]
    big = nd.zeros((2,), dtype="int64")
    big[0] = 2**60 + 1
    assert big.asnumpy()[0] == 2**60 + 1


@pytest.mark.parametrize(
    "key, kind, rule",
    [
        (5, IndexError, "index 5 is out of bounds for axis 0 with size 2"),
        (-3, IndexError, "out of bounds"),
        ([0, 5], IndexError, "index 5 is out of bounds"),
        ((0, 0, 0, 0), IndexError, "too many indices"),
        ((Ellipsis, Ellipsis), IndexError, "single Ellipsis"),
        (1.5, ValueError, "does not support a key of type float"),
        ("x", ValueError, "does not support"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        (([0, 1], [0, 1, 2]), ValueError, "must broadcast together"),
        ([[0, 1], [1]], ValueError, "inhomogeneous"),
    ],
)
def test_bad_keys_are_refused_and_change_nothing(key, kind, rule):
    x = nd.array(A)
    with pytest.raises(kind, match=rule):
        x[key]
    with pytest.raises(kind, match=rule):
        x[key] = 1
    np.testing.assert_array_equal(x.asnumpy(), A)


@pytest.mark.parametrize(
    "value, kind",
    [
        ([1, 2, 3], ValueError),
        (nd.zeros((2, 2)), ValueError),
        ("x", TypeError),
        (None, TypeError),
        ([[1, 2], [3]], TypeError),
    ],
)
def test_bad_values_are_refused_and_change_nothing(value, kind):
    x = nd.array(A)
    for key in (slice(None), (slice(None), slice(None), slice(None, None, 2)), 0):
        with pytest.raises(kind):
            x[key] = value
    np.testing.assert_array_equal(x.asnumpy(), A)


def test_an_index_array_out_of_bounds_fails_at_the_wait():
    x = nd.array(A)
    with pytest.raises(mx.MXNetError, match="indices must be in"):
        x[nd.array([0, 5])].asnumpy()
    np.testing.assert_array_equal(x.asnumpy(), A)


def test_recorded_arrays_refuse_assignment():
    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = x * 2
        for taped in (x, y, x[0:2]):
            with pytest.raises(mx.MXNetError, match="already in a computational graph"):
                taped[0] = 5
        fresh = nd.zeros((3,))
        with pytest.raises(mx.MXNetError, match="Inplace operations"):
            fresh[0] = x[0]
        assert fresh.asnumpy().tolist() == [0, 0, 0]
        fresh[:] = x  # a whole array may become a recorded value
        z = fresh * fresh
    z.backward()
    assert x.grad.asnumpy().tolist() == [2, 2, 2]
    y[0] = 5  # outside record: allowed
    assert y.asnumpy().tolist() == [5, 2, 2]


def test_len_iteration_and_contains():
    x = nd.array(A)
    assert (
        len(x) == 2
        and [p.shape for p in x] == [(3, 4)] * 2
        and [float(v) for v in nd.arange(3)] == [0, 1, 2]
    )
    assert 5.0 in x and 99 not in x
    for f in (len, iter):
        with pytest.raises(TypeError, match="0-d"):
            f(nd.array(1.0))


# ---- slices that move ----------------------------------------------------------------------------

READS = {
    "x[i:j]": lambda x, i: x[i : i + 3],
    "x[:, i:j]": lambda x, i: x[:, i : i + 3],
    "x[::-1, i:j]": lambda x, i: x[::-1, i : i + 3],
    "x[i, None, ..., i:j]": lambda x, i: x[i, None, ..., i : i + 2],
    "slice": lambda x, i: nd.slice(x, begin=(1, i), end=(4, i + 3)),
    "slice with a step": lambda x, i: nd.slice(x, begin=(None, i + 4), end=(3, i), step=(1, -2)),
    "slice_axis 0": lambda x, i: nd.slice_axis(x, axis=0, begin=i, end=i + 3),
    "slice_axis 1": lambda x, i: nd.slice_axis(x, axis=-1, begin=i - 12, end=i - 9),
    "the method": lambda x, i: x.slice_axis(axis=1, begin=i, end=i + 3),
}
MOVES = range(0, 8)


def n_plans():
    """Plans and backward programs, after what is there was made."""
    operators = set(REGISTRY.values())
    return sum(len(op.plans) for op in operators), len(backward._programs)


@pytest.mark.parametrize("name", READS)
def test_a_slice_that_moves_needs_one_plan(name):
    read, data = READS[name], np.arange(144.0, dtype="float32").reshape(12, 12)
    x, counts = nd.array(data), []
    x.attach_grad()
    for i in MOVES:
        plain = read(x, i).asnumpy()
        with autograd.record():
            y = read(x, i)
            z = (y * y).sum()
        z.backward()
        mx.wait_compiled()
        counts.append(n_plans())
        np.testing.assert_array_equal(plain, y.asnumpy())
        np.testing.assert_array_equal(plain, read(nd.array(data), i).asnumpy())
        wanted = np.where(np.isin(data, plain), 2 * data, 0)
        np.testing.assert_array_equal(x.grad.asnumpy(), wanted)
    assert len(set(counts[2:])) == 1  # the second run was compiled


def test_slices_are_those_of_numpy_wherever_they_begin():
    data = np.arange(144.0).reshape(12, 12)
    x = nd.array(data, dtype="float64")
    for i in range(12):
        for j in range(i, 13):
            np.testing.assert_array_equal(
                nd.slice_axis(x, axis=1, begin=i, end=j).asnumpy(), data[:, i:j]
            )
            np.testing.assert_array_equal(
                nd.slice(x, begin=(j, i), end=(None, j), step=(-1, 1)).asnumpy(), data[j::-1, i:j]
            )


@pytest.mark.parametrize("value", ["an array", 2.0])
def test_an_assignment_that_moves_needs_one_plan(value):
    data = np.zeros((12, 12), "float32")
    x, counts = nd.array(data), []
    for i in MOVES:
        for key in (slice(i, i + 3), (slice(None), slice(i, i + 3)), (slice(None, None, -2), i)):
            shape = data[key].shape
            new = np.random.randn(*shape).astype("float32") if value == "an array" else value
            x[key] = nd.array(new) if value == "an array" else value
            data[key] = new
            np.testing.assert_array_equal(x.asnumpy(), data)
        counts.append(n_plans())
    assert len(set(counts)) == 1


def test_a_second_derivative_through_a_slice():
    x = nd.array([1.0, 2.0, 3.0, 4.0])
    x.attach_grad()
    for i in range(3):
        with autograd.record():
            y = x[i : i + 2]
            g = autograd.grad((y * y * y).sum(), [x], create_graph=True)[0]
            z = (g * g).sum()
        z.backward()
        wanted = np.zeros(4)
        wanted[i : i + 2] = 36 * np.array([1.0, 2.0, 3.0, 4.0])[i : i + 2] ** 3
        np.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-6)


def test_a_part_outside_of_its_array_fails():
    x, view = nd.zeros((4, 4)), {"sizes": (2, 2), "steps": (4, 1)}
    strided = lambda at: invoke(lookup("_strided"), (x,), {"at": at, **view})
    with pytest.raises(mx.MXNetError, match="must lie in its 16 elements"):
        strided(12)
    strided(10).wait_to_read()
    with pytest.raises(mx.MXNetError, match="must lie inside it"):
        strided(11).wait_to_read()  # the plan is there

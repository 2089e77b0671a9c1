"""What Python and NumPy users type first, held to NumPy."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest
from plait import autograd, gluon, nd, sym

RNG = np.random.RandomState(0)
A = RNG.randn(2, 3).astype("float32")


def test_numbers_and_lists():
    one, whole, x = nd.array([2.5]), nd.array([[3]], dtype="int32"), nd.array(A)
    assert one.item() == 2.5 and type(one.item()) is float
    assert whole.item() == 3 and type(whole.item()) is int
    assert (x.item(4), x.item(1, 0), x.item((1, 0))) == (A.item(4), A.item(1, 0), A.item(1, 0))
    assert x.tolist() == A.tolist() and nd.array(3.0).tolist() == 3.0
    half = nd.array([1.5, -2]).astype("bfloat16")
    assert half.tolist() == [1.5, -2] and half.item(0) == 1.5
    with pytest.raises(ValueError, match=r"item: .* one element, got shape \(2, 3\)"):
        x.item()
    assert (float(one), int(one), complex(one), round(one), round(one, 1)) == (2.5, 2, 2.5, 2, 2.5)
    assert (math.floor(one), math.ceil(one), math.trunc(one), math.sqrt(whole)) == (2, 3, 2, 3**0.5)
    assert [5, 6, 7, 8][whole] == 8 and list(range(whole)) == [0, 1, 2]


def test_formats():
    one, whole = nd.array([2.5]), nd.array([3], dtype="int64")
    assert (f"{one:.3f}", f"{one:>6}", "%.2f" % one, f"{whole:03d}") == (
        "2.500",
        "   2.5",
        "2.50",
        "003",
    )
    assert f"{one}" == str(one)
    with pytest.raises(TypeError, match=r"format: only an array of one element.*\(2, 3\)"):
        f"{nd.array(A):.2f}"


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
]


class Product(gluon.HybridBlock):
    def hybrid_forward(self, F, x, y):
        return x @ y


@pytest.mark.parametrize("left, right", SHAPES)
def test_matrix_product(left, right):
    a, b = RNG.randn(*left).astype("float32"), RNG.randn(*right).astype("float32")
    want = a @ b
    net = Product()
    for hybrid in (False, True):
        net.hybridize(hybrid)
        found = net(nd.array(a), nd.array(b)).asnumpy()
        np.testing.assert_allclose(found.reshape(want.shape), want, rtol=1e-5, atol=1e-6)


def test_matrix_product_in_place_gradient_and_errors():
    x, y = nd.array(A), nd.array(A.T.copy())
    x.attach_grad()
    with autograd.record():
        z = (x @ y).sum()
    z.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), np.tile(A.sum(0), (2, 1)), rtol=1e-5)
    x = nd.array(A)
    x @= y
    np.testing.assert_allclose(x.asnumpy(), A @ A.T, rtol=1e-5)
    assert x.dot(x).shape == (2, 2)
    for call in (lambda: y @ A, lambda: A @ y):
        with pytest.raises(TypeError, match="cannot mix NDArray and ndarray"):
            call()
    with pytest.raises(TypeError, match="unsupported operand"):
        y @ 2
    with pytest.raises(ValueError, match="operands need an axis"):
        y @ nd.array(2.0)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_floor_division(dtype):
    a = np.array([7, -7, 7, -7, 1, 0], dtype)
    b = np.array([2, 2, -2, -2, 5, 3], dtype)
    x, y = nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)
    np.testing.assert_array_equal((x // y).asnumpy(), a // b)
    np.testing.assert_array_equal((x // 2).asnumpy(), a // 2)
    np.testing.assert_array_equal((7 // y).asnumpy(), 7 // b)
    for ours, want in zip((*divmod(x, y), *divmod(7, y)), (*divmod(a, b), *divmod(7, b))):
        np.testing.assert_array_equal(ours.asnumpy(), want)
    x //= 2
    np.testing.assert_array_equal(x.asnumpy(), a // 2)
    assert (nd.array([1.0]) // 0.1).asscalar() == 1 // 0.1


def test_misleading_operators_raise_with_a_fix():
    a = nd.array([1.0, 0.0])
    for call, fix in (
        (lambda: a & a, "logical_and"),
        (lambda: a | True, "logical_or"),
        (lambda: 1 ^ a, "logical_xor"),
        (lambda: ~a, "logical_not"),
        (lambda: sym.var("x") & sym.var("y"), "logical_and"),
    ):
        with pytest.raises(TypeError, match=fix):
            call()
    assert (+a).tolist() == a.tolist() and +a is not a


def test_any_and_all():
    for values in ([[1, 0], [2, 3]], [[0, 0], [0, 0]], [[1, 2], [3, np.nan]]):
        a, x = np.array(values, "float32"), nd.array(values)
        for axis in (None, 0, 1):
            for name in ("any", "all"):
                want = getattr(a, name)(axis)
                assert np.array_equal(getattr(x, name)(axis).asnumpy().reshape(want.shape), want)
        assert bool(np.all(x == x)) == np.all(a == a) and bool(np.any(x > 2)) == np.any(a > 2)
    counts = nd.ones((256,), dtype="int8")  # a sum would be 0
    assert counts.any() and counts.all()
    empty = nd.zeros((0, 2))
    assert empty.all() and not empty.any()
    assert empty.all(axis=0).asnumpy().tolist() == [1, 1]


def test_sequences_and_comparison():
    x, v = nd.array(A), nd.array([3.0, 1.0, 2.0])
    assert len(x) == 2 and [row.shape for row in x] == [(3,), (3,)]
    assert [e.item() for e in reversed(v)] == [2, 1, 3]
    assert [e.item() for e in sorted(v)] == [1, 2, 3] and max(v).item() == 3
    assert 2 in v and 9 not in v and sum(v).item() == 6
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert len({x, x, v}) == 2
    first, second = x
    assert second.tolist() == A[1].tolist()


def test_copies_and_numpy():
    x, v = nd.array(A), nd.array([3.0, 1.0])
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        made[0] = 0
        assert x.tolist() == A.tolist()
    assert np.asarray(x).tolist() == A.tolist() and np.array(x, dtype="int64").dtype == "int64"
    assert np.stack([v, v]).shape == (2, 2) and np.concatenate([v, v]).tolist() == [3, 1, 3, 1]
    assert x.T.shape == (3, 2) and abs(-v).tolist() == [3, 1] and pow(v, 2).tolist() == [9, 1]
    np.testing.assert_allclose(x, A)
    assert np.interp(2, [1, 3], v) == 2.0


def test_inplace_shape_methods_are_views():
    x = nd.arange(6).reshape((1, 6))
    made = x.expand_dims(axis=1, inplace=True), x.squeeze(axis=0, inplace=True)
    y = nd.arange(6).reshape((2, 3, 1))
    flat = y.flatten(inplace=True)
    x[:] = -1
    y[0] = -2
    assert [a.shape for a in made] == [(1, 1, 6), (6,)] and all((a == -1).all() for a in made)
    assert flat.tolist() == [[-2, -2, -2], [3, 4, 5]]
    assert x.expand_dims(-1, True).shape == (1, 6, 1) and x.squeeze([0], True).shape == (6,)
    with pytest.raises(ValueError, match="squeeze"):
        x.squeeze(axis=1, inplace=True)
    with autograd.record():
        x.attach_grad()
        z = (x.squeeze(axis=0, inplace=True) * nd.arange(6)).sum()
    z.backward()
    assert x.grad.tolist() == [[0, 1, 2, 3, 4, 5]]
    s = sym.var("s").squeeze(axis=0, inplace=True).expand_dims(axis=1, inplace=True)
    assert s.infer_shape(s=(1, 2))[1] == [(2, 1)]


def test_astype_of_what_has_a_dtype():
    x, like = nd.array([1.5]), nd.array([1], dtype="int32")
    parameter = gluon.Parameter("a", shape=(1,), dtype="int32")
    assert all(x.astype(d).dtype is np.int32 for d in (like, parameter, like.dtype))
    assert nd.array([1], dtype="int32").astype(None).dtype is np.float32


def test_arrays_of_texts_and_objects():
    """Numbers are MXNet's."""
    from decimal import Decimal

    for source, want in (
        (["1", "2.5"], [1, 2.5]),
        ([["1"], ["2"]], [[1], [2]]),
        (np.array([b"1", b"2"]), [1, 2]),
        ("1.5", 1.5),
        (["1", 2], [1, 2]),
        (np.array(["1", 2], object), [1, 2]),
        ([Decimal("1.5"), True], [1.5, 1]),
        (np.array([np.array([1, 2]), np.array([3, 4])], object), [[1, 2], [3, 4]]),
        (np.array(["1970-01-03"], "datetime64[D]"), [2]),
    ):
        assert nd.array(source).tolist() == want
    assert np.isnan(nd.array([1, None]).asnumpy()).tolist() == [False, True]
    exact = 2**53 + 1
    assert nd.array(np.array([exact], object), dtype="int64").item() == exact
    for wrong in (["a"], [""], [[1], [1, 2]], [1 + 2j], {1}, [{}]):
        with pytest.raises(TypeError, match="array: the source must"):
            nd.array(wrong)


def test_waiting_in_threads():
    found: list = []

    def work(n):
        x = nd.full((100,), n)
        for _ in range(20):
            x = x + 1
            nd.waitall()
        found.append(x.sum().item() - 100 * n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [2000] * 4

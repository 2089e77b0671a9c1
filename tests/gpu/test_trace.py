"""Kernels made from references: what NumPy computes, on gpu(0)."""

import numpy as np
import pytest
from plait import gpu, nd
from plait.kernels.cuda import trace
from plait.kernels.cuda.backend import CUDA
from plait.kernels.plan import make_plan, scalars_of
from plait.kernels.record import Operator, Param, Type
from plait.ndarray.launch import launch

X = np.random.default_rng(3).standard_normal((4, 5, 6)).astype("float32")
AT = np.array([[0, 3, 3], [1, -1, 0]])


def operator(ref, like, **fields):
    outs = ref(np, *like, **{p.name: 2.0 for p in fields.get("params", ())})
    outs = outs if isinstance(outs, tuple) else (outs,)
    types = [Type(o.shape, o.dtype.name) for o in outs]
    inputs = tuple(f"x{i}" for i in range(len(like)))
    return Operator(
        name="_traced", infer=lambda ins, **_: types, ref=ref, inputs=inputs,
        n_outputs=len(types), **fields,
    )  # fmt: skip


@pytest.fixture
def on_gpu(monkeypatch):
    """Runs a reference on gpu(0), as its kernel; gives its results and its launches."""

    def run(ref, *arrays, attrs=None, **fields):
        op, attrs = operator(ref, arrays, **fields), attrs or {}
        types = [Type(a.shape, a.dtype.name) for a in arrays]
        made = trace.trace(op, types, op.infer(types), attrs)
        monkeypatch.setitem(CUDA.entries, "_traced", [lambda *_: made])
        given = [nd.array(a, ctx=gpu(0), dtype=a.dtype) for a in arrays]
        plan = make_plan(op, attrs, [a._spec for a in given], gpu(0))
        outs = launch(plan, given, scalars_of(op, attrs))
        return [o.asnumpy() for o in outs], made.params.steps

    return run


def same(on_gpu, ref, *arrays):
    want = ref(np, *arrays)
    got, steps = on_gpu(ref, *arrays)
    for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
    return steps


def test_pointwise_operations_are_one_kernel(on_gpu):
    def ref(xp, x, y):
        low = xp.where(x > y, xp.exp(x) / 3, xp.maximum(x, y) ** 2)
        return low * xp.sign(y), (xp.floor(x * 4).astype("int32") // 3) % 4, xp.isfinite(x)

    assert len(same(on_gpu, ref, X, X[:, :1] * 0.5)) == 1


def test_views_joins_and_gathers_store_nothing(on_gpu):
    def ref(xp, x):
        a = xp.moveaxis(x, 0, -1)[::-1, 1:, None]
        b = xp.concatenate([a, xp.repeat(a, 2, axis=1)], axis=1)
        c = xp.pad(b, ((0, 0), (1, 1), (0, 0), (2, 0)), mode="edge")
        return c[AT], xp.take_along_axis(x, xp.asarray(AT)[:, :, None] * 0 + 1, axis=1)[0]

    x = X[:2, :5]
    assert len(same(on_gpu, lambda xp, x: ref(xp, x)[0], x)) == 1


def test_assignments(on_gpu):
    def ref(xp, x):
        y = xp.zeros(x.shape, x.dtype)
        y[:, 1:4:2] = x[:, :2] * 2
        y[1] += x[0]
        y[..., 0] = 7
        xp.moveaxis(y, 0, 2)[2, 3] = 5  # through a view
        y[x > 1] = -1
        return y

    same(on_gpu, ref, X)


def test_what_several_places_name_is_added(on_gpu):
    def ref(xp, x):
        y = xp.ones((4, 5), x.dtype)
        xp.add.at(y, (AT, 2), x[0, :2, :3])
        z = xp.zeros((4, 5, 6), x.dtype)
        z[AT[0, :2], :, 1] = x[0, :, :2].T
        return y, z

    same(on_gpu, ref, X)


def test_reductions(on_gpu):
    long = np.random.default_rng(4).standard_normal((3, 1500)).astype("float32")

    def ref(xp, x, y):
        centred = x - x.mean(axis=(0, 2), keepdims=True)
        return (
            xp.sqrt((centred * centred).sum(axis=(0, 2))),
            x.max(axis=1),
            xp.argmin(x, axis=2),
            xp.cumsum(x, axis=1),
            y.sum(axis=1),
            (y > 3).any(axis=1),
            xp.einsum("ijk,ijl->ikl", x, x[:, :, :2]),
        )

    same(on_gpu, ref, X, long)


def test_long_reductions_go_in_stages(on_gpu):
    x = np.random.default_rng(5).standard_normal((40, 32, 32)).astype("float32")
    ref = lambda xp, x: ((x * 2).sum(), x.max(axis=(0, 1)))
    assert len(same(on_gpu, ref, x)) == 5  # the sum in two, the maximum; a store of each


def test_numbers_of_a_call_are_arguments(on_gpu):
    def ref(xp, x, limit):
        return xp.where(limit >= 0, xp.clip(x, -limit, limit), x)

    params = (Param("limit", "float", dynamic=True),)
    for limit in (0.5, -1.0):
        (got,), _ = on_gpu(ref, X, attrs={"limit": limit}, params=params)
        np.testing.assert_array_equal(got, ref(np, X, limit))


def test_shapes_share_a_text(on_gpu):
    ref = lambda xp, x: xp.moveaxis(x, 0, 1).sum(axis=2) + 1
    texts = {on_gpu(ref, X[:a, :b])[1][0].source for a, b in ((4, 5), (3, 4))}
    assert len(texts) == 1


def test_all_kernels_of_a_call_are_one_module(on_gpu):
    steps = on_gpu(lambda xp, x: (x - x.mean(axis=1, keepdims=True)).sum(axis=0), X)[1]
    assert len(steps) > 1 and len({s.source for s in steps}) == 1


@pytest.mark.parametrize(
    "ref",
    [
        lambda xp, x: x if x.sum() > 0 else -x,
        lambda xp, x: xp.zeros(int(x[0, 0, 0]) * 0 + 2),
        lambda xp, x: x[x > 0][:1],
        lambda xp, x: xp.linalg.inv(x[:, :5, :5]),
    ],
)
def test_who_looks_at_values_is_not_traced(ref):
    types = [Type(X.shape, "float32")]
    op = operator(lambda xp, x: x, [X])
    op.ref = ref
    assert trace.traced_entry(op, types, types, {}) is None
    with pytest.raises(trace.Untraceable):
        trace.trace(op, types, types, {})


def test_truth_of_a_number_is_not_a_number(on_gpu):
    """A comparison of a call's number is a bool, which `&` takes."""
    assert len(same(on_gpu, lambda xp, x: (x != 0) & (x.dtype.type(2) != 0), X)) == 1
    params = (Param("scalar", "float", 2.0, dynamic=True),)
    ref = lambda xp, x, scalar: (x > 0) & (scalar != 0)
    (got,), steps = on_gpu(ref, X, attrs={"scalar": 2.0}, params=params)
    np.testing.assert_array_equal(got, X > 0)
    assert len(steps) == 1


@pytest.mark.parametrize(
    "ref, error",
    [
        (lambda xp, x: xp.sort(x, kind="stable", axis=0, stable=None, order=["a"]), None),
        (lambda xp, x: x.byteswap(), None),  # unknown to the tracer
        (lambda xp, x: x if x.sum() > 0 else -x, None),  # looks at values
        (lambda xp, x: x + missing, NameError),  # noqa: F821
        (lambda xp, x: {}[0], KeyError),
    ],
)
def test_only_what_cannot_be_traced_is_left_to_the_reference(ref, error):
    types = [Type(X.shape, "float32")]
    op = Operator(name="_traced", infer=lambda ins: types, ref=ref, inputs=("x",))
    if error is None:
        assert trace.traced_entry(op, types, types, {}) is None
    else:
        with pytest.raises(error):
            trace.traced_entry(op, types, types, {})

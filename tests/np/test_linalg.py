"""Products and np.linalg beyond what test_fronts.py derives: signatures, results that are unique
only up to a sign or a turn, einsum at random, errors. Compared with NumPy in float64."""

import itertools
import math
import random

import numpy as onp
import pytest
from plait import MXNetError, autograd, nd, np, sym

RNG = onp.random.default_rng(3)


def normal(*shape):
    return RNG.normal(size=shape)


def definite(n):
    x = normal(n, n)
    return x @ x.T + onp.eye(n)


def equal(got, want, tolerance=1e-10):
    assert got.shape == onp.shape(want)
    onp.testing.assert_allclose(got.asnumpy(), want, rtol=tolerance, atol=tolerance)


def gradient(f, x):
    """Of the sum of f's results, by autograd."""
    a = np.array(x)
    a.attach_grad()
    with autograd.record():
        y = f(a)
    y.backward()
    return a.grad.asnumpy()


def slopes(f, x, step=1e-6):
    """Central differences of f(array) -> number in all elements."""
    found = onp.zeros_like(x)
    for at in onp.ndindex(*x.shape):
        moved = onp.zeros_like(x)
        moved[at] = step
        found[at] = (f(x + moved) - f(x - moved)) / (2 * step)
    return found


def check_gradient(f, x, tolerance=1e-6):
    """First and second order: f takes an array of mx.np and gives a number."""
    weights = normal(*x.shape)

    def value(v):
        return f(np.array(v)).item()

    def along(a):
        with autograd.record():
            g = autograd.grad(f(a), a, create_graph=True)[0]
            return (g * np.array(weights)).sum()

    def slope(v):
        a = np.array(v)
        a.attach_grad()
        return along(a).item()

    onp.testing.assert_allclose(gradient(f, x), slopes(value, x), rtol=tolerance, atol=tolerance)
    a = np.array(x)
    a.attach_grad()
    along(a).backward()
    onp.testing.assert_allclose(a.grad.asnumpy(), slopes(slope, x), rtol=1e-4, atol=1e-5)


# ---- products ------------------------------------------------------------------------------------


SHAPES = [(), (3,), (2, 3), (3, 3), (2, 2, 3), (4, 1, 3, 3)]


@pytest.mark.parametrize("a, b", list(itertools.product(SHAPES, SHAPES)))
def test_products_of_all_ranks_equal_numpy(a, b):
    x, y = normal(*a), normal(*b)
    for name in ("dot", "matmul", "inner", "outer", "kron"):
        try:
            want = getattr(onp, name)(x, y)
        except ValueError:
            with pytest.raises(ValueError, match=rf"np\.{name}: "):
                getattr(np, name)(np.array(x), np.array(y))
            continue
        equal(getattr(np, name)(np.array(x), np.array(y)), want)


@pytest.mark.parametrize(
    "a, b", [((0, 3), (3, 2)), ((2, 0), (0, 3)), ((1, 2, 3), (0, 3, 2)), ((0,), (0,))]
)
def test_products_without_elements(a, b):
    x, y = onp.zeros(a), onp.zeros(b)
    equal(np.matmul(np.array(x), np.array(y)), x @ y)


@pytest.mark.parametrize("one, other, found", [
    ("int32", "int32", "int32"), ("int32", "float32", "float32"), ("bool", "int64", "int64"),
    ("float16", "float16", "float16"), ("float32", "float64", "float64"), ("bool", "bool", "bool"),
])  # fmt: skip
def test_dtypes_of_products(one, other, found):
    x, y = onp.array([[1, 2], [0, 4]], one), onp.array([[1, 0], [3, 1]], other)
    for name in ("dot", "matmul", "inner", "tensordot", "vdot", "outer"):
        got = getattr(np, name)(np.array(x), np.array(y))
        assert onp.dtype(got.dtype) == found
        equal(got, getattr(onp, name)(x, y))


def test_matmul_operator():
    x, y = normal(2, 3), normal(3, 2)
    a, b = np.array(x), np.array(y)
    equal(a @ b, x @ y)
    equal(x @ b, x @ y)
    equal(a @ y, x @ y)
    equal(a @ y.tolist(), x @ y, 1e-6)
    equal(a.dot(b), x @ y)
    for bad in (2, None, "x"):
        with pytest.raises(TypeError):
            a @ bad
        with pytest.raises(TypeError):
            bad @ a
    square = np.array(x @ y)
    same = square
    square @= square
    assert square is same
    equal(square, (x @ y) @ (x @ y))


@pytest.mark.parametrize("a, b, axes", [
    ((2, 3), (3, 4), 1), ((2, 3), (2, 3), 2), ((2,), (3,), 0), ((), (2,), 0), ((), (), 0),
    ((2, 3, 4), (4, 3, 2), ([0, 1], [2, 1])), ((2, 3), (4, 3), (1, -1)), ((0, 3), (3, 2), 1),
])  # fmt: skip
def test_tensordot(a, b, axes):
    x, y = normal(*a), normal(*b)
    equal(np.tensordot(np.array(x), np.array(y), axes), onp.tensordot(x, y, axes))


@pytest.mark.parametrize(
    "axes", [3, -1, ([0], [0]), ([0, 1], [0]), ([5], [0]), ([0, 0], [0, 0]), (1, 2, 3)]
)
def test_tensordot_refuses_axes(axes):
    with pytest.raises(ValueError, match=r"np\.tensordot: "):
        np.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes)


@pytest.mark.parametrize("seed", range(60))
def test_einsum_of_random_subscripts(seed):
    """1 to 4 operands, labels that repeat, ellipses, axes of size 1, in every order of search."""
    draw = random.Random(seed)
    labels = "abcde"
    sizes = {x: draw.choice([1, 2, 3]) for x in labels}
    terms, arrays = [], []
    dots = draw.random() < 0.3
    for _ in range(draw.randint(1, 4)):
        own = [draw.choice(labels) for _ in range(draw.randint(0, 3))]
        shape = [sizes[x] for x in own]
        if dots:
            own, shape = ["...", *own], [draw.choice([1, 2]), *shape]
        terms.append("".join(own))
        arrays.append(normal(*shape))
    used = sorted({x for t in terms for x in t if x != "."})
    output = draw.sample(used, draw.randint(0, len(used)))
    text = ",".join(terms)
    if draw.random() < 0.7:
        text += "->" + ("..." if dots else "") + "".join(output)
    want = onp.einsum(text, *arrays)
    for optimize in (False, True, "greedy", "optimal"):
        equal(np.einsum(text, *map(np.array, arrays), optimize=optimize), want)


def test_einsum_forms():
    x, y, z = normal(2, 3), normal(3, 4), normal(4)
    a, b, c = map(np.array, (x, y, z))
    equal(np.einsum(a, [0, 1], b, [1, 2], [2, 0]), (x @ y).T)
    equal(np.einsum(a, [Ellipsis, 1], b, [1, 2]), x @ y)
    path, text = np.einsum_path("ij,jk,k->i", a, b, c)
    assert path == ["einsum_path", (1, 2), (0, 1)]
    assert "ij,jk,k->i" in text
    equal(np.einsum("ij,jk,k->i", a, b, c, optimize=path), x @ y @ z)
    equal(np.einsum("ij,jk,k->i", a, b, c, optimize=["einsum_path", (0, 1), (0, 1)]), x @ y @ z)
    out = np.zeros((2, 4), dtype="float64")
    assert np.einsum("ij,jk", a, b, out=out) is out
    equal(out, x @ y)


def test_einsum_order_is_cheap():
    """A chain whose order matters: from the vector on, 3 products of matrix and vector."""
    shapes = [(50, 60), (60, 70), (70, 80), (80,)]
    arrays = [np.zeros(s) for s in shapes]
    for optimize in ("greedy", "optimal"):
        path, _ = np.einsum_path("ab,bc,cd,d->a", *arrays, optimize=optimize)
        assert path[1] == (2, 3)
    from plait.kernels.einsum import order, parse

    many = parse(",".join(f"{x}{y}" for x, y in itertools.pairwise("abcdefghij")), [(2, 2)] * 9)
    assert len(order(many, "0")) == len(order(many, "optimal")) == 8


@pytest.mark.parametrize("text, shapes", [
    ("ij,jk", [(2, 3), (2, 3)]), ("ij", [(2, 3), (3, 2)]), ("i", [(2, 3)]), ("ij->k", [(2, 3)]),
    ("i$", [(2, 3)]), ("...i->i", [(2, 3)]), ("ij->ii", [(2, 3)]), ("ii", [(2, 3)]),
    ("ijk", [(2, 3)]),
])  # fmt: skip
def test_einsum_refuses(text, shapes):
    with pytest.raises(ValueError, match=r"np\.einsum: "):
        np.einsum(text, *[np.ones(s) for s in shapes])


@pytest.mark.parametrize("optimize", ["best", [(0, 1, 2)], [(0, 5), (0, 1)], [(0, 1)]])
def test_einsum_refuses_paths(optimize):
    with pytest.raises(ValueError, match=r"np\.einsum: "):
        np.einsum("i,i,i", np.ones(2), np.ones(2), np.ones(2), optimize=optimize)


def test_einsum_gradients():
    x = normal(2, 3)
    y, z = np.array(normal(3, 4)), np.array(normal(2, 4))
    check_gradient(lambda a: np.einsum("ij,jk,ik,ij->", a, y, z, a), x)
    check_gradient(lambda a: (np.einsum("ii->i", a) ** 3).sum(), normal(3, 3))


def test_products_make_the_programs_of_nd():
    """One step: the very operator that nd calls."""
    a = np.ones((2, 3))
    with autograd.record():
        a.attach_grad()
        y = np.matmul(a, np.ones((3, 4)))
        z = nd.dot(a.as_nd_ndarray(), nd.ones((3, 4)))
    assert y._tape[0].plan is z._tape[0].plan


# ---- decompositions ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (3, 3), (2, 4, 2), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(shape, mode):
    x = normal(*shape)
    got, want = np.linalg.qr(np.array(x), mode), onp.linalg.qr(x, mode)
    if mode == "r":
        equal(got, want)
        return
    equal(got.Q, want.Q)
    equal(got.R, want.R)


@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (3, 3), (2, 4, 2), (0, 3), (3, 0)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(shape, full):
    x = normal(*shape)
    u, s, v = np.linalg.svd(np.array(x), full_matrices=full)
    for got, want in zip((u, s, v), onp.linalg.svd(x, full_matrices=full)):
        assert got.shape == want.shape
    equal(s, onp.linalg.svd(x, compute_uv=False))
    k = min(shape[-2:])
    equal((u[..., :k] * np.expand_dims(s, -2)) @ v[..., :k, :], x)
    n = u.shape[-1]
    equal(np.einsum("...ji,...jk->...ik", u, u), onp.broadcast_to(onp.eye(n), (*shape[:-2], n, n)))
    equal(np.linalg.svdvals(np.array(x)), onp.linalg.svd(x, compute_uv=False))


def test_numpy_functions_keep_their_defaults():
    x = normal(4, 3)
    a = np.array(x)
    assert onp.linalg.svd(a)[0].shape == (4, 4)
    assert np.linalg.svd(a)[0].shape == (4, 3)
    assert type(onp.linalg.inv(a[:3])) is type(onp.einsum("ij,ij", a, a)) is np.ndarray


def test_svd_of_symmetric_matrices_reads_one_triangle():
    x = definite(3)
    wrong = x + onp.triu(onp.ones((3, 3)), 1)
    equal(np.linalg.svd(np.array(wrong), hermitian=True).S, onp.linalg.svd(x, hermitian=True)[1])


def test_gradients_of_decompositions():
    """Of functions that a sign or a turn of the vectors does not change."""
    w = np.array(normal(3, 3))

    def weigh(x):
        return (x * x * w[: x.shape[-2], : x.shape[-1]]).sum()

    apart = onp.diag([1.0, 2.0, 4.0]) + 0.1 * normal(3, 3)
    check_gradient(lambda a: weigh(np.linalg.eig(a).eigenvectors), apart)
    check_gradient(lambda a: (np.linalg.eig(a)[0] ** 3).sum(), apart)
    check_gradient(lambda a: (np.linalg.eigvals(a) ** 3).sum(), apart)
    for uplo in "LU":  # a triangle is read, the gradient is that along symmetric changes
        check_gradient(lambda a: weigh(np.linalg.eigh(a + a.T, uplo)[1]), apart)
        check_gradient(lambda a: (np.linalg.eigvalsh(a + a.T, uplo) ** 3).sum(), apart)
    for shape in ((3, 3), (4, 3), (2, 3)):
        x = normal(*shape)
        check_gradient(lambda a: weigh(np.linalg.svd(a).U[:3]), x)
        check_gradient(lambda a: weigh(np.linalg.svd(a).Vh), x)
        check_gradient(lambda a: (np.linalg.svdvals(a) ** 3).sum(), x)
        check_gradient(lambda a: np.linalg.norm(a, "nuc"), x)
        check_gradient(lambda a: (np.linalg.pinv(a)[:2, :2] * w[:2, :2]).sum(), x)
    v = np.array(normal(4, 4))

    def off(x):  # what lies outside a space: unchanged by a turn within it
        return np.einsum("ij,kj,il,kl->", x, x, v, v)

    check_gradient(lambda a: off(np.linalg.svd(a, full_matrices=True).U[:, 3:]), normal(4, 3))
    check_gradient(lambda a: off(np.linalg.qr(a, "complete").Q[:, 2:]), normal(4, 2))
    b = np.array(normal(4, 2))
    check_gradient(lambda a: (np.linalg.lstsq(a, b)[0] ** 2).sum(), normal(4, 2))
    check_gradient(lambda a: (np.linalg.lstsq(np.array(v[:, :2]), a)[1]).sum(), normal(4, 2))
    check_gradient(lambda a: (np.linalg.matrix_power(a, -2) * w).sum(), definite(3))
    for p in (None, 1, 2, -2, math.inf, "fro", "nuc"):
        check_gradient(lambda a: np.linalg.cond(a, p), definite(3), 1e-5)


def test_norm_of_zeros_has_gradient_zero():
    equal(np.array(gradient(np.linalg.norm, onp.zeros((2, 2)))), onp.zeros((2, 2)))


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3, 0.5, -1, -2, math.inf, -math.inf, "fro", "nuc"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), (-1, 0), (2,), [1, 2]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norm(ord, axis, keepdims):
    x = normal(2, 3, 4)
    options = {
        "ord": ord,
        "axis": tuple(axis) if isinstance(axis, list) else axis,
        "keepdims": keepdims,
    }
    try:
        want = onp.linalg.norm(x, **options)
    except ValueError:
        with pytest.raises(ValueError, match=r"np\.linalg\.norm: "):
            np.linalg.norm(np.array(x), ord, axis, keepdims)
        return
    equal(np.linalg.norm(np.array(x), ord, axis, keepdims), want)


def test_norms_of_the_standard():
    x = normal(2, 3, 4)
    a = np.array(x)
    for axis, ord, keepdims in itertools.product(
        [None, 1, (0, 2), (-1, 0)], [1, 2, math.inf], [0, 1]
    ):
        options = {"axis": axis, "ord": ord, "keepdims": bool(keepdims)}
        equal(np.linalg.vector_norm(a, **options), onp.linalg.vector_norm(x, **options))
    for ord in ("fro", "nuc", 1, 2, -2):
        equal(np.linalg.matrix_norm(a, ord=ord), onp.linalg.matrix_norm(x, ord=ord))


def test_lstsq():
    for m, n, columns in [(5, 3, ()), (5, 3, (2,)), (3, 5, ()), (3, 3, (1,))]:
        x, y = normal(m, n), normal(m, *columns)
        for got, want in zip(np.linalg.lstsq(np.array(x), np.array(y)), onp.linalg.lstsq(x, y)):
            equal(got, want)
    low = onp.outer(onp.arange(4.0), [1, 2])  # of rank 1: no residuals
    for got, want in zip(
        np.linalg.lstsq(np.array(low), np.ones(4)), onp.linalg.lstsq(low, onp.ones(4))
    ):
        equal(got, want)
    assert np.linalg.lstsq(np.ones((3, 1)), np.ones(3), rcond="warn")[2].item() == 1


def test_rank_and_pinv_of_low_rank():
    low = onp.outer(onp.arange(4.0), [1, 2, 3])
    a = np.array(low)
    assert np.linalg.matrix_rank(a).item() == 1
    assert np.linalg.matrix_rank(a, tol=1e3).item() == 0
    assert np.linalg.matrix_rank(np.array([0.0, 1.0])).item() == 1
    equal(np.linalg.pinv(a, 1e-10), onp.linalg.pinv(low, 1e-10))
    equal(np.linalg.pinv(a, rtol=np.array(1e-10)), onp.linalg.pinv(low, 1e-10))


def test_parts_and_products_of_matrices():
    x, y = normal(2, 3, 3), normal(2, 3, 3)
    a, b = np.array(x), np.array(y)
    equal(np.linalg.matrix_transpose(a), onp.linalg.matrix_transpose(x))
    equal(np.linalg.diagonal(a, offset=1), onp.linalg.diagonal(x, offset=1))
    equal(np.linalg.trace(a, offset=-1), onp.linalg.trace(x, offset=-1))
    equal(np.linalg.cross(a, b, axis=1), onp.linalg.cross(x, y, axis=1))
    equal(np.linalg.vecdot(a, b, axis=0), onp.linalg.vecdot(x, y, axis=0))
    equal(np.linalg.outer(a[0, 0], b[0, 0]), onp.linalg.outer(x[0, 0], y[0, 0]))
    equal(np.linalg.multi_dot([a[0, 0], b[0], a[0]]), onp.linalg.multi_dot([x[0, 0], y[0], x[0]]))
    equal(np.trace(a, 1, 1, 2, dtype="float32"), onp.trace(x, 1, 1, 2), 1e-6)
    assert np.trace(np.eye(3, dtype="bool")).item() == 3


def test_errors_say_what_is_wrong():
    singular, turn = np.zeros((2, 2)), np.array([[0, -1], [1, 0]])
    for call in (
        lambda: np.linalg.inv(singular),
        lambda: np.linalg.solve(singular, np.ones(2)),
        lambda: np.linalg.cholesky(-np.eye(2)),
        lambda: np.linalg.eig(turn)[0],
        lambda: np.linalg.eigvals(turn),
    ):
        with pytest.raises(np.linalg.LinAlgError):
            call().wait_to_read()
    with pytest.raises(
        MXNetError, match="all eigenvalues must be real, got one with imaginary part 1"
    ):
        np.linalg.eigvals(turn).wait_to_read()
    for call in (
        lambda: np.linalg.inv(np.ones((2, 3))),
        lambda: np.linalg.det(np.ones(3)),
        lambda: np.linalg.solve(np.eye(2), np.ones(3)),
        lambda: np.linalg.svd(np.ones(3)),
        lambda: np.linalg.norm(np.ones((2, 2)), "max"),
        lambda: np.linalg.norm(np.ones((2, 2)), 3),
        lambda: np.linalg.pinv(np.eye(2), 1e-3, rtol=1e-3),
        lambda: np.linalg.matrix_rank(np.eye(2), 1e-3, rtol=1e-3),
        lambda: np.linalg.multi_dot([np.eye(2)]),
        lambda: np.linalg.multi_dot([np.eye(2), np.ones((1, 2, 2)), np.eye(2)]),
        lambda: np.linalg.lstsq(np.eye(2), np.ones(3)),
        lambda: np.linalg.tensorinv(np.ones((2, 3))),
        lambda: np.linalg.tensorsolve(np.ones((2, 3)), np.ones(2)),
        lambda: np.linalg.outer(np.eye(2), np.ones(2)),
        lambda: np.linalg.cross(np.ones(2), np.ones(2)),
        lambda: np.linalg.matrix_transpose(np.ones(2)),
        lambda: np.linalg.cond(np.ones((0, 0))),
        lambda: np.cross(np.ones(4), np.ones(4)),
        lambda: np.vdot(np.ones(3), np.ones(4)),
        lambda: np.vander(np.eye(2)),
        lambda: np.trace(np.ones(3)),
        lambda: np.trace(np.eye(3), 0, 1, 1),
        lambda: np.polyval(np.eye(2), np.ones(2)),
        lambda: np.linalg.matrix_power(np.ones((2, 3)), 2),
    ):
        with pytest.raises(ValueError, match=r"^np\.[a-z_.]+: "):
            call()


def test_symbols():
    x = sym.np.np_symbol if hasattr(sym.np, "np_symbol") else sym.var("x").as_np_ndarray()
    value = definite(3)
    made = sym.np.linalg.eigh(x)
    assert isinstance(made, tuple)
    total = sym.np.linalg.norm(x @ made.eigenvectors) + sym.np.einsum("ij,ij->", x, x)
    found = total.bind(np.ones(1).context, {"x": np.array(value)}).forward()[0]
    onp.testing.assert_allclose(found.asnumpy(), onp.linalg.norm(value) + (value**2).sum())


# ---- np.fft --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::plait.np.NumpyFallback")
def test_fft():
    x = normal(4, 8)
    a = np.array(x)
    spectrum = np.fft.rfft(a)
    assert type(spectrum) is onp.ndarray  # complex numbers are NumPy's
    onp.testing.assert_allclose(spectrum, onp.fft.rfft(x))
    equal(np.fft.irfft(spectrum), x)
    equal(np.fft.fftshift(a), onp.fft.fftshift(x))
    assert onp.dtype(np.fft.fftfreq(8).dtype) == "float32"
    equal(np.fft.fftfreq(8, 0.5), onp.fft.fftfreq(8, 0.5), 1e-6)
    a.attach_grad()
    with autograd.record(), pytest.raises(ValueError, match=r"np\.fft\.fft has no gradient"):
        np.fft.fft(a)


def test_np_has_no_functions_of_np_linalg():
    for space in (np, sym.np):
        assert not hasattr(space, "inv") and "inv" not in dir(space)
        assert not hasattr(space, "add_scalar") and hasattr(space, "trace")
    with pytest.raises(AttributeError, match=r"fix: np\.linalg\.inv"):
        np.inv

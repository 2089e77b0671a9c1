"""mx.test_utils: comparisons, random arrays and gradient checks that test-suites written for MXNet
start with."""

from __future__ import annotations

import contextlib
import functools
import os
import random

import numpy as np

from .. import ndarray as nd
from .. import symbol as sym
from ..engine import Context, cpu, current_context
from ..engine.error import InvalidValue
from ..ndarray import autograd
from ..ndarray.ndarray import NDArray
from ..ndarray.random import seed as seed_engine
from .testing.compare import (  # noqa: F401 - offered from here
    check_speed,
    checkShapes,
    get_etol,
    has_tvm_ops,
    is_aarch64_run,
    is_cd_run,
    is_op_runnable,
    locationError,
    same_symbol_structure,
)
from .testing.data import (  # noqa: F401 - offered from here
    download,
    download_model,
    get_bz2_data,
    get_cifar10,
    get_im2rec_path,
    get_mnist,
    get_mnist_iterator,
    get_mnist_pkl,
    get_mnist_ubyte,
    get_zip_data,
)
from .testing.iterator import DummyIter  # noqa: F401 - offered from here
from .testing.matrices import (  # noqa: F401 - offered from here
    assign_each,
    assign_each2,
    collapse_sum_like,
    create_2d_tensor,
    create_vector,
    get_identity_mat,
    get_identity_mat_batch,
    new_matrix_with_real_eigvals_2d,
    new_matrix_with_real_eigvals_nd,
    new_orthonormal_matrix_2d,
    new_sym_matrix_with_real_eigvals_2d,
    new_sym_matrix_with_real_eigvals_nd,
    np_reduce,
    rand_coord_2d,
    random_uniform_arrays,
)
from .testing.sparse import (  # noqa: F401 - offered from here
    create_sparse_array,
    create_sparse_array_zd,
    rand_sparse_ndarray,
    shuffle_csr_column_indices,
)
from .testing.statistics import (  # noqa: F401 - offered from here
    chi_square_check,
    gen_buckets_probs_with_ppf,
    mean_check,
    var_check,
    verify_generator,
)

_RTOL = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-5}
_ATOL = {np.dtype(np.float16): 1e-1, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-20}
_context: list[Context] = []


# ---- defaults ------------------------------------------------------------------------------------


def default_context() -> Context:
    """The device that tests use."""
    return _context[-1] if _context else current_context()


def set_default_context(ctx: Context) -> None:
    """Makes ctx the context of tests in this thread."""
    _context[:] = [ctx]


def default_dtype():
    """The dtype of test data: float32."""
    return np.float32


def default_rtols() -> dict:
    """Relative tolerance by dtype; integers and bools compare exactly."""
    return {**_RTOL, **{np.dtype(t): 0 for t in ("bool", "int8", "uint8", "int32", "int64")}}


def default_atols() -> dict:
    """Absolute tolerance by dtype."""
    return {**_ATOL, **{np.dtype(t): 0 for t in ("bool", "int8", "uint8", "int32", "int64")}}


def default_numeric_eps() -> dict:
    """Step of numeric differentiation by dtype."""
    return {np.dtype(np.float16): 1e-1, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-4}


def effective_dtype(dat):
    """The dtype whose precision data has."""
    return np.dtype(dat.dtype if hasattr(dat, "dtype") else np.float64)


def get_tolerance(dat, tol, default_tol):
    """A tolerance given as None (default), a number, or a dictionary by dtype."""
    if isinstance(tol, (int, float)):
        return tol
    table = default_tol if tol is None else {np.dtype(k): v for k, v in tol.items()}
    return table.get(effective_dtype(dat), 0)


def get_tols(x, y, rtol=None, atol=None):
    """The looser of two arrays' tolerances."""
    return (
        max(get_tolerance(x, rtol, default_rtols()), get_tolerance(y, rtol, default_rtols())),
        max(get_tolerance(x, atol, default_atols()), get_tolerance(y, atol, default_atols())),
    )


def get_rtol(rtol=None, dtype=np.dtype("float64")):
    """rtol, or the default of a dtype."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol=None, dtype=np.dtype("float64")):
    """atol, or the default of a dtype."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol


# ---- comparing -----------------------------------------------------------------------------------


def _numpy(x):
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def same(a, b) -> bool:
    """Are two arrays equal in every element?"""
    return bool(np.array_equal(_numpy(a), _numpy(b)))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Do two arrays share their memory? Writes through one and looks at the other."""
    array1[:] += 1
    if not same(array1, array2):
        array1[:] -= 1
        return False
    array1[:] -= 1
    return same(array1, array2)


def almost_equal(a, b, rtol=None, atol=None, equal_nan=False, use_broadcast=True) -> bool:
    """|a - b| <= atol + rtol * |b| everywhere?"""
    a, b = _numpy(a), _numpy(b)
    rtol, atol = get_tols(a, b, rtol, atol)
    if not use_broadcast and a.shape != b.shape:
        return False
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol, equal_nan))


def assert_almost_equal(
    a,
    b,
    rtol=None,
    atol=None,
    names=("a", "b"),
    equal_nan=False,
    use_broadcast=True,
    mismatches=(10, 10),
) -> None:
    """Raises AssertionError with the worst elements unless |a - b| <= atol + rtol * |b|
    everywhere."""
    a, b = _numpy(a), _numpy(b)
    if almost_equal(a, b, rtol, atol, equal_nan, use_broadcast):
        return
    rtol, atol = get_tols(a, b, rtol, atol)
    if a.shape != b.shape and not use_broadcast:
        raise AssertionError(f"shapes differ: {names[0]} {a.shape} and {names[1]} {b.shape}")
    x, y = np.broadcast_arrays(a.astype(np.float64), b.astype(np.float64))
    with np.errstate(all="ignore"):
        excess = np.abs(x - y) / (atol + rtol * np.abs(y) + 1e-300)
    excess = np.where(
        np.isnan(excess), np.where(np.isnan(x) & np.isnan(y) & equal_nan, 0, np.inf), excess
    )
    bad = np.argwhere(excess > 1)
    lines = [f"{len(bad)} of {x.size} elements differ by more than rtol {rtol} and atol {atol}"]
    for place in sorted(map(tuple, bad), key=lambda p: -excess[p])[: mismatches[0]]:
        lines.append(
            f"  {tuple(int(i) for i in place)}: {names[0]} {x[place]:.8g}  {names[1]}"
            f" {y[place]:.8g}"
        )
    raise AssertionError("\n".join(lines))


def assert_almost_equal_with_err(
    a,
    b,
    rtol=None,
    atol=None,
    etol=None,
    names=("a", "b"),
    equal_nan=False,
    mismatches=(10, 10),
) -> None:
    """Like assert_almost_equal, but a share `etol` of the elements may differ."""
    a, b = _numpy(a), _numpy(b)
    rtol, atol = get_tols(a, b, rtol, atol)
    close = np.isclose(a, b, rtol, atol, equal_nan)
    if 1 - close.mean() > get_etol(etol):
        assert_almost_equal(a, b, rtol, atol, names, equal_nan, mismatches=mismatches)


def compare_ndarray_tuple(t1, t2, rtol=None, atol=None) -> None:
    """assert_almost_equal for nested tuples of arrays; None equals anything."""
    if t1 is None or t2 is None:
        return
    if not isinstance(t1, tuple):
        assert_almost_equal(t1, t2, rtol, atol)
        return
    for a, b in zip(t1, t2):
        compare_ndarray_tuple(a, b, rtol, atol)


def compare_optimizer(
    opt1,
    opt2,
    shape,
    dtype,
    w_stype="default",
    g_stype="default",
    rtol=1e-4,
    atol=1e-5,
    compare_states=True,
    ntensors=1,
) -> None:
    """One update of two optimizers from the same weights and gradients must agree.

    shape: of the weight, or a list of `ntensors` shapes. w_stype, g_stype: storage types that opt2
        gets; opt1 gets dense arrays.
    """
    several = ntensors > 1
    shapes = shape if several else [shape]

    def draw(stype, density=None):
        return [rand_ndarray(s, stype, density=density, dtype=dtype) for s in shapes]

    weights, grads = draw(w_stype, 1), draw(g_stype)
    results = []
    for optimizer in (opt1, opt2):
        w, g = [a.copy() for a in weights], [a.copy() for a in grads]
        if optimizer is opt1:
            w, g = ([a.tostype("default") for a in arrays] for arrays in (w, g))
        index = list(range(ntensors)) if several else 0
        state = [optimizer.create_state_multi_precision(i, a) for i, a in enumerate(w)]
        optimizer.update_multi_precision(
            index, w if several else w[0], g if several else g[0], state if several else state[0]
        )
        results.append((w, state))
    for a, b in zip(results[0][0], results[1][0]):
        assert_almost_equal(a, b, rtol, atol)
    if compare_states:
        for a, b in zip(results[0][1], results[1][1]):
            compare_ndarray_tuple(a, b, rtol, atol)


def assert_allclose(a, b, rtol=1e-07, atol=0, equal_nan=True) -> None:
    """Like assert_almost_equal, with NumPy's tolerances."""
    assert_almost_equal(a, b, rtol, atol, equal_nan=equal_nan)


def assert_almost_equal_ignore_nan(a, b, rtol=None, atol=None, names=("a", "b")) -> None:
    """Like assert_almost_equal where neither array is NaN."""
    a, b = _numpy(a).copy(), _numpy(b).copy()
    nan = np.isnan(a) | np.isnan(b)
    a[nan] = b[nan] = 0
    assert_almost_equal(a, b, rtol, atol, names)


def assert_exception(f, exception_type, *args, **kwargs) -> None:
    """Raises AssertionError unless f(*args, **kwargs) raises exception_type."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type.__name__}")


# ---- random arrays -------------------------------------------------------------------------------


def rand_shape_2d(dim0=10, dim1=10, allow_zero_size=False):
    """A random shape of two axes, from 1 (or 0) to dim0 and dim1."""
    return rand_shape_nd(2, (dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0=10, dim1=10, dim2=10, allow_zero_size=False):
    """A random shape of three axes, from 1 (or 0) to dim0, dim1 and dim2."""
    return rand_shape_nd(3, (dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim, dim=10, allow_zero_size=False):
    """A random shape: each axis from 1 (or 0) to `dim`."""
    dims = dim if isinstance(dim, tuple) else (dim,) * num_dim
    return tuple(int(n) for n in np.random.randint(0 if allow_zero_size else 1, np.array(dims) + 1))


def random_arrays(*shapes):
    """Normal float64 NumPy arrays (numbers for empty shapes); one, or a list."""
    arrays = [
        (
            np.array(np.random.randn(), dtype=default_dtype())
            if len(s) == 0
            else np.random.randn(*s).astype(default_dtype())
        )
        for s in shapes
    ]
    return arrays[0] if len(arrays) == 1 else arrays


def random_sample(population, k):
    """k elements in random order without repetition."""
    return random.sample(list(population), k)


def rand_ndarray(
    shape,
    stype="default",
    density=None,
    dtype=None,
    modifier_func=None,
    shuffle_csr_indices=False,
    distribution=None,
    ctx=None,
) -> NDArray:
    """A dense array of uniform numbers in [-1, 1), or a sparse one: see rand_sparse_ndarray."""
    if stype != "default":
        found, _ = rand_sparse_ndarray(
            shape,
            stype,
            density,
            dtype or default_dtype(),
            distribution,
            modifier_func=modifier_func,
            shuffle_csr_indices=shuffle_csr_indices,
            ctx=ctx or default_context(),
        )
        return found
    values = np.random.uniform(-1, 1, shape)
    if modifier_func is not None:
        values = np.vectorize(modifier_func)(values)
    return nd.array(values, ctx or default_context(), dtype or default_dtype())


# ---- symbols -------------------------------------------------------------------------------------


def simple_forward(sym, ctx=None, is_train=False, **inputs):
    """Outputs of a symbol for NumPy inputs given by name, as NumPy; one, or a list."""
    ctx = ctx or default_context()
    executor = sym.simple_bind(ctx, **{k: v.shape for k, v in inputs.items()})
    for name, value in inputs.items():
        executor.arg_dict[name][:] = value
    outputs = [o.asnumpy() for o in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def _arrays(names, location, ctx, dtype):
    if isinstance(location, dict):
        unknown = set(location) - set(names)
        if unknown:
            raise InvalidValue(
                f"symbol arguments and keys of location do not match: {sorted(unknown)} not in"
                f" {names}"
            )
        pairs = {n: location[n] for n in names if n in location}
    else:
        pairs = dict(zip(names, location or ()))
    return {
        n: (
            v
            if isinstance(v, NDArray)
            else nd.array(v, ctx, v.dtype if dtype == "asnumpy" else dtype)
        )
        for n, v in pairs.items()
    }


def check_symbolic_forward(
    sym,
    location,
    expected,
    rtol=None,
    atol=None,
    aux_states=None,
    ctx=None,
    equal_nan=False,
    dtype=np.float32,
):
    """Compares a symbol's outputs (predict mode) with expected ones. Returns them as NumPy."""
    ctx = ctx or default_context()
    args = _arrays(sym.list_arguments(), location, ctx, dtype)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, ctx, dtype)
    executor = sym.bind(ctx, args, args_grad=None, grad_req="null", aux_states=aux)
    outputs = executor.forward(is_train=False)
    expected = [expected[k] for k in sym.list_outputs()] if isinstance(expected, dict) else expected
    for name, want, got in zip(sym.list_outputs(), expected, outputs):
        assert_almost_equal(
            want, got, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan
        )
    return [o.asnumpy() for o in outputs]


def check_symbolic_backward(
    sym,
    location,
    out_grads,
    expected,
    rtol=None,
    atol=None,
    aux_states=None,
    grad_req="write",
    ctx=None,
    grad_stypes=None,
    equal_nan=False,
    dtype=np.float32,
):
    """Compares a symbol's gradients with expected ones (a list, or by argument name). Returns them
    by name. grad_stypes: their storage types by name."""
    ctx = ctx or default_context()
    names = sym.list_arguments()
    args = _arrays(names, location, ctx, dtype)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, ctx, dtype)
    expected = dict(zip(names, expected)) if isinstance(expected, (list, tuple)) else expected
    before = {
        k: np.random.normal(size=_numpy(v).shape).astype(np.float32) for k, v in expected.items()
    }
    grads = {k: nd.array(v, ctx, args[k].dtype) for k, v in before.items()}
    for k, stype in (grad_stypes or {}).items():
        grads[k] = grads[k].tostype(stype)
    reqs = {
        n: (
            grad_req
            if isinstance(grad_req, str)
            else (
                dict(zip(names, grad_req)) if isinstance(grad_req, (list, tuple)) else grad_req
            ).get(n, "null")
        )
        for n in grads
    }
    executor = sym.bind(ctx, args, grads, {n: reqs.get(n, "null") for n in names}, aux)
    outputs = executor.forward(is_train=True)
    if out_grads is not None:
        given = (
            [out_grads[k] for k in sym.list_outputs()] if isinstance(out_grads, dict) else out_grads
        )
        out_grads = [
            g if isinstance(g, NDArray) else nd.array(g, ctx, o.dtype)
            for g, o in zip(given, outputs)
        ]
    executor.backward(out_grads)
    for name, want in expected.items():
        got = executor.grad_dict[name]
        if reqs[name] == "add":
            want = _numpy(want) + before[name]
        if reqs[name] != "null":
            assert_almost_equal(
                want, got, rtol, atol, (f"EXPECTED_{name}", f"BACKWARD_{name}"), equal_nan
            )
    return {name: None if g is None else g.asnumpy() for name, g in executor.grad_dict.items()}


def numeric_grad(
    executor, location, aux_states=None, eps=1e-4, use_forward_train=True, dtype=np.float32
):
    """Central differences of the sum of an executor's first output. Returns NumPy gradients by
    argument name."""

    def evaluate():
        for name, value in (aux_states or {}).items():
            executor.aux_dict[name][:] = value
        return executor.forward(is_train=use_forward_train)[0].asnumpy().sum(dtype=np.float64)

    location = {k: _numpy(v).astype(dtype) for k, v in location.items()}
    for name, value in location.items():
        executor.arg_dict[name][:] = value
    grads = {}
    for name, value in location.items():
        if value.dtype.kind != "f":
            continue
        flat, out = value.copy().reshape(-1), np.zeros(value.size, np.float64)
        for i in range(value.size):
            kept = flat[i]
            flat[i] = kept + eps / 2
            executor.arg_dict[name][:] = flat.reshape(value.shape)
            above = evaluate()
            flat[i] = kept - eps / 2
            executor.arg_dict[name][:] = flat.reshape(value.shape)
            out[i] = (above - evaluate()) / eps
            flat[i] = kept
        executor.arg_dict[name][:] = value
        grads[name] = out.reshape(value.shape).astype(dtype)
    return grads


def check_numeric_gradient(
    sym,
    location,
    aux_states=None,
    numeric_eps=None,
    rtol=None,
    atol=None,
    grad_nodes=None,
    use_forward_train=True,
    ctx=None,
    grad_stype_dict=None,
    dtype=np.float32,
) -> None:
    """Compares a symbol's gradients, projected on a random direction, with numeric ones."""
    from ..symbol import functions as F

    ctx = ctx or default_context()
    eps = numeric_eps or default_numeric_eps()[np.dtype(dtype)]
    args = _arrays(sym.list_arguments(), location, ctx, dtype)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, ctx, dtype)
    names = list(args) if grad_nodes is None else list(grad_nodes)
    shape = sym.infer_shape(**{k: v.shape for k, v in args.items()})[1][0]
    direction = nd.array(np.random.normal(size=shape) + 0.1, ctx, dtype)
    projected = F.make_loss(F.sum(F.broadcast_mul(sym, _variable("__random_proj"))))
    stypes = grad_stype_dict or {}
    grads = {n: nd.zeros(args[n].shape, ctx, dtype, stype=stypes.get(n)) for n in names}
    everything = {**args, "__random_proj": direction}
    executor = projected.bind(
        ctx,
        everything,
        grads,
        {n: "write" if n in names else "null" for n in everything},
        {k: v.copy() for k, v in aux.items()},
    )
    executor.forward(is_train=True)
    executor.backward()
    analytic = {n: executor.grad_dict[n].asnumpy() for n in names}
    numeric = numeric_grad(
        executor,
        {n: args[n] for n in names},
        {k: v.asnumpy() for k, v in aux.items()},
        eps,
        use_forward_train,
        dtype,
    )
    for name in names:
        assert_almost_equal(
            numeric[name],
            analytic[name],
            rtol or 1e-2,
            atol or 1e-3,
            (f"NUMERICAL_{name}", f"BACKWARD_{name}"),
        )


def _variable(name):
    return sym.var(name)


def check_consistency(
    sym,
    ctx_list,
    scale=1.0,
    grad_req="write",
    arg_params=None,
    aux_params=None,
    rtol=None,
    atol=None,
    raise_on_err=True,
    ground_truth=None,
    equal_nan=False,
    use_uniform=False,
    rand_type=np.float64,
):
    """Runs a symbol under several contexts and dtypes and compares outputs and gradients with the
    most exact one.

    ctx_list: dictionaries with `ctx`, shapes by argument name and optionally `type_dict`. Returns
        the outputs.
    """
    symbols = sym if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    executors = [s.simple_bind(grad_req=grad_req, **c) for s, c in zip(symbols, ctx_list)]
    first = executors[0]
    arg_params = dict(arg_params or {})
    for name, array in first.arg_dict.items():
        if name not in arg_params:
            draw = (
                np.random.uniform(-0.92, 0.92, array.shape)
                if use_uniform
                else np.random.normal(size=array.shape)
            )
            arg_params[name] = (draw * scale).astype(rand_type)
    results = []
    for ex in executors:
        for name, array in ex.arg_dict.items():
            array[:] = arg_params[name].astype(array.dtype)
        for name, array in ex.aux_dict.items():
            array[:] = (aux_params or {}).get(name, 0)
        outputs = ex.forward(is_train=grad_req != "null")
        got = {f"output_{i}": o.asnumpy() for i, o in enumerate(outputs)}
        if grad_req != "null":
            ex.backward([o.copy() for o in outputs])
            got.update({f"grad_{k}": g.asnumpy() for k, g in ex.grad_dict.items() if g is not None})
        results.append(got)
    precision = [min(r["output_0"].dtype.itemsize, 8) for r in results]
    truth = ground_truth or results[int(np.argmax(precision))]
    for got, width in zip(results, precision):
        tolerance = {2: 1e-1, 4: 1e-3, 8: 1e-5}.get(width, 0)
        for key, value in got.items():
            try:
                assert_almost_equal(
                    value,
                    truth[key],
                    rtol or tolerance,
                    atol or tolerance,
                    (key, "truth"),
                    equal_nan,
                )
            except AssertionError:
                if raise_on_err:
                    raise
    return [r[k] for r in results for k in r if k.startswith("output_")]


def check_gluon_hybridize_consistency(
    net_builder, data_l, numpy_func=None, test_grad=True, rtol=1e-4, atol=1e-4
) -> None:
    """Compares outputs and gradients of a block eager and hybridized (and with a NumPy
    function)."""
    saved_outputs, saved_grads = None, None
    for hybridize in (False, True):
        np.random.seed(1)
        seed_engine(1)
        net = net_builder()
        net.initialize()
        if hybridize:
            net.hybridize()
        inputs = [x.as_in_context(cpu()).copy() for x in data_l]
        for x in inputs:
            x.attach_grad()
        if test_grad:
            with autograd.record():
                out = net(*inputs)
            out.backward(out)
            grads = [x.grad.asnumpy() for x in inputs]
            if saved_grads is None:
                saved_grads = grads
            for a, b in zip(saved_grads, grads):
                assert_almost_equal(a, b, rtol, atol)
        else:
            out = net(*inputs)
        if saved_outputs is None:
            saved_outputs = out.asnumpy()
        assert_almost_equal(saved_outputs, out, rtol, atol)
        if numpy_func is not None:
            assert_almost_equal(numpy_func(*[x.asnumpy() for x in inputs]), out, rtol, atol)


# ---- surroundings --------------------------------------------------------------------------------


@contextlib.contextmanager
def environment(*args):
    """Sets environment variables (a name and a value, or a dictionary; None removes one) and
    restores them."""
    wanted = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {k: os.environ.get(k) for k in wanted}

    def put(values):
        for k, v in values.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = str(v)

    put(wanted)
    try:
        yield
    finally:
        put(before)


def retry(n):
    """Decorator: runs a test up to n times until it does not fail."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            for left in range(n - 1, -1, -1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if not left:
                        raise

        return run

    return decorate


@contextlib.contextmanager
def discard_stderr():
    """Drops what is written to standard error meanwhile, by C code too."""
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def list_gpus() -> list[int]:
    """Numbers of the usable GPUs."""
    from ..engine import num_gpus

    return list(range(num_gpus()))

"""Checks of symbols: outputs and gradients, compared with expected ones, numeric ones and each
other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ndarray as nd
from ... import symbol as sym
from ...engine import Context
from ...engine.error import InvalidValue
from ...kernels.spec import DType
from ...ndarray.ndarray import NDArray
from .assertions import as_numpy, assert_almost_equal
from .tolerance import default_context, default_numeric_eps, get_tolerance


def simple_forward(
    sym: Any, ctx: Context | None = None, is_train: bool = False, **inputs: Any
) -> Any:
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
    sym: Any,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Context | None = None,
    equal_nan: bool = False,
    dtype: DType = np.float32,
) -> Any:
    """Compares a symbol's outputs (predict mode) with expected ones. Returns them."""
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
    return outputs


def check_symbolic_backward(
    sym: Any,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: str = "write",
    ctx: Context | None = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: DType = np.float32,
) -> Any:
    """Compares a symbol's gradients with expected ones (a list, or by argument name). Returns them
    by name. grad_stypes: their storage types by name."""
    ctx = ctx or default_context()
    names = sym.list_arguments()
    args = _arrays(names, location, ctx, dtype)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, ctx, dtype)
    expected = dict(zip(names, expected)) if isinstance(expected, (list, tuple)) else expected
    before = {
        k: np.random.normal(size=as_numpy(v).shape).astype(np.float32) for k, v in expected.items()
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
        out_grads = [nd.array(g, ctx, o.dtype) for g, o in zip(given, outputs)]
    executor.backward(out_grads)
    for name, want in expected.items():
        got = executor.grad_dict[name]
        if reqs[name] == "add":
            want = as_numpy(want) + before[name]
        if reqs[name] != "null":
            assert_almost_equal(
                want, got, rtol, atol, (f"EXPECTED_{name}", f"BACKWARD_{name}"), equal_nan
            )
    return grads


def numeric_grad(
    executor: Any,
    location: Any,
    aux_states: Any = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: DType = np.float32,
) -> Any:
    """Central differences of an executor's first output, summed. Returns NumPy gradients by
    argument name. Elements are subtracted before they are summed, which keeps the error of float32
    that of one element."""

    def evaluate():
        for name, value in (aux_states or {}).items():
            executor.aux_dict[name][:] = value
        return executor.forward(is_train=use_forward_train)[0].asnumpy().astype(np.float64)

    location = {k: as_numpy(v).astype(dtype) for k, v in location.items()}
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
            out[i] = (above - evaluate()).sum() / eps
            flat[i] = kept
        executor.arg_dict[name][:] = value
        grads[name] = out.reshape(value.shape).astype(dtype)
    return grads


def check_numeric_gradient(
    sym: Any,
    location: Any,
    aux_states: Any = None,
    numeric_eps: Any = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: Any = None,
    dtype: DType = np.float32,
) -> None:
    """Compares a symbol's gradients, projected on a random direction, with numeric ones.

    numeric_eps, rtol, atol: numbers, or by dtype; by default those of dtype. grad_nodes: names of
        arguments, or their requests by name: 'write', 'add' (to what is there), 'null' (nothing is
        written). Raises AssertionError, ValueError for another request.
    """
    from ...symbol import functions as F

    ctx = ctx or default_context()
    eps = get_tolerance(np.empty(0, dtype), numeric_eps, default_numeric_eps())
    args = _arrays(sym.list_arguments(), location, ctx, dtype)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, ctx, dtype)
    requests = _requests(list(args) if grad_nodes is None else grad_nodes)
    shape = sym.infer_shape(**{k: v.shape for k, v in args.items()})[1][0]
    # elements near 0 would hide errors of the gradient
    direction = nd.array(np.random.rand(*shape) + 0.1, ctx, dtype)
    projected = F.make_loss(F.broadcast_mul(sym, _variable("__random_proj")))
    before = {n: np.random.normal(0, 0.01, args[n].shape).astype(dtype) for n in requests}
    grads = {n: nd.array(v, ctx, dtype) for n, v in before.items()}
    for name, stype in (grad_stype_dict or {}).items():
        if name in grads and stype != "default":
            grads[name] = nd.zeros(args[name].shape, ctx, dtype, stype=stype)
    executor = projected.bind(
        ctx,
        {**args, "__random_proj": direction},
        grads,
        {n: requests.get(n, "null") for n in (*args, "__random_proj")},
        {k: v.copy() for k, v in aux.items()},
    )
    executor.forward(is_train=True)
    executor.backward()
    analytic = {
        n: g.asnumpy() for n, g in executor.grad_dict.items() if n in requests and g is not None
    }
    numeric = numeric_grad(
        executor,
        {n: args[n] for n in requests},
        {k: v.asnumpy() for k, v in aux.items()},
        eps,
        use_forward_train,
        dtype,
    )
    for name, request in requests.items():
        found = analytic[name] - before[name] if request == "add" else analytic[name]
        assert_almost_equal(
            before[name] if request == "null" else numeric[name],
            found,
            rtol,
            atol,
            (f"NUMERICAL_{name}", f"BACKWARD_{name}"),
        )


def _requests(grad_nodes) -> dict[str, str]:
    if not isinstance(grad_nodes, (list, tuple, dict)):
        raise InvalidValue(
            f"check_numeric_gradient: grad_nodes must be a list of names or a dict of requests, got"
            f" {grad_nodes!r}"
        )
    requests = grad_nodes if isinstance(grad_nodes, dict) else dict.fromkeys(grad_nodes, "write")
    for name, request in requests.items():
        if request not in ("write", "add", "null"):
            raise InvalidValue(
                f"check_numeric_gradient: the request of {name!r} must be write, add or null, got"
                f" {request!r}"
            )
    return requests


def _variable(name):
    return sym.var(name)


def check_consistency(
    sym: Any,
    ctx_list: Any,
    scale: float = 1.0,
    grad_req: str = "write",
    arg_params: Any = None,
    aux_params: Any = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: Any = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> list[Any]:
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

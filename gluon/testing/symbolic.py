"""Checks of symbols: outputs and gradients, against expected ones, numeric ones and each other."""

from __future__ import annotations

import numpy as np

from ... import ndarray as nd
from ... import symbol as sym
from ...engine.error import InvalidValue
from ...ndarray.ndarray import NDArray
from .assertions import as_numpy, assert_almost_equal
from .tolerance import default_context, default_numeric_eps


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
        out_grads = [
            g if isinstance(g, NDArray) else nd.array(g, ctx, o.dtype)
            for g, o in zip(given, outputs)
        ]
    executor.backward(out_grads)
    for name, want in expected.items():
        got = executor.grad_dict[name]
        if reqs[name] == "add":
            want = as_numpy(want) + before[name]
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
    from ...symbol import functions as F

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

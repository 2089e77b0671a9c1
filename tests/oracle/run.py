"""Runs prepared calls in one framework: `python run.py mxnet|plait DIR`. It is a child process:
MXNet may crash on a call, and the parent starts it again after that one.

DIR holds cases.json and <id>.npz; results are <framework>/<id>.npz and lines of
<framework>/done.jsonl. A line {"id": ..., "begin": true} is written before a call.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import warnings
from pathlib import Path

import numpy as np

from graph import graph_of, mxnet_composer, plait_composer

warnings.simplefilter("ignore")


def mxnet_invoke():
    """(framework, apply(name, arrays, attrs))."""
    import mxnet as mx
    from mxnet.base import _LIB, c_str, check_call
    from mxnet.ndarray.register import _imperative_invoke

    def apply(name, arrays, attrs, out):
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
        keys = list(attrs)
        values = [str(attrs[k]) for k in keys]
        return _imperative_invoke(handle.value, arrays, keys, values, out, False, False)

    return mx, apply


def plait_invoke():
    import plait as mx
    from plait.kernels.record import lookup
    from plait.ndarray.invoke import invoke

    return mx, lambda name, arrays, attrs, out: invoke(lookup(name), arrays, attrs, out)


def names_of_mxnet() -> list[str]:
    """Every operator name that MXNet knows."""
    import mxnet.base as base

    size, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    base.check_call(base._LIB.MXListAllOpNames(ctypes.byref(size), ctypes.byref(names)))
    return [names[i].decode() for i in range(size.value)]


def run(mx, apply, case, given) -> dict[str, np.ndarray]:
    """Outputs (y0, ...), gradients given (h0, ...) and made (g0, ...), gradients of gradients
    (k0, ...) for case["twice"], and inputs after the call (x0, ...)."""
    mx.random.seed(7)
    arrays = [mx.nd.array(a, dtype=a.dtype) for a in given]
    for i in case["smooth"]:
        arrays[i].attach_grad()
    found = {}
    out = None
    if case["out"] and max(case["out"]) < len(arrays):
        out = [arrays[i] for i in case["out"]]
        out = out[0] if len(out) == 1 else out
    with mx.autograd.record(train_mode=True) if out is None else contextlib.nullcontext():
        outs = apply(case["operator"], arrays, case["attrs"], out)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    for i, y in enumerate(outs):
        found[f"y{i}"] = y.asnumpy()
    rng = np.random.default_rng(5)
    if case["smooth"] and all(y.dtype in (np.float16, np.float32, np.float64) for y in outs):
        heads = [like(mx, rng, y) for y in outs]
        found |= {f"h{i}": h.asnumpy() for i, h in enumerate(heads)}
        try:
            mx.autograd.backward(outs, heads)
            for i in case["smooth"]:
                found[f"g{i}"] = arrays[i].grad.asnumpy()
        except mx.base.MXNetError as error:
            found["no_gradient"] = np.array(last_line(error))
        else:
            if case.get("twice"):
                found |= second_gradients(mx, apply, case, arrays, heads)
    for i, a in enumerate(arrays):
        found[f"x{i}"] = a.asnumpy()
    return found


def like(mx, rng, y):
    return mx.nd.array(rng.normal(size=y.shape).astype(y.dtype), dtype=y.dtype)


def second_gradients(mx, apply, case, arrays, heads) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    smooth = [arrays[i] for i in case["smooth"]]
    try:
        with mx.autograd.record(train_mode=True):
            outs = apply(case["operator"], arrays, case["attrs"], None)
            outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
            first = mx.autograd.grad(outs, smooth, heads, retain_graph=True, create_graph=True)
            total = sum((g * like(mx, rng, g)).sum() for g in first)
        total.backward()
        return {f"k{i}": arrays[i].grad.asnumpy() for i in case["smooth"]}
    except mx.base.MXNetError as error:
        return {"no_second": np.array(last_line(error))}


def last_line(error) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
    said = [line for line in lines if "Error" in line or "Check failed" in line]
    return (said or lines)[-1 if lines[0].startswith("Traceback") else 0].strip()[:300]


def attrs_of(attrs):
    """JSON has no tuples."""
    return {
        k: tuple(tuple(x) if isinstance(x, list) else x for x in v) if isinstance(v, list) else v
        for k, v in attrs.items()
    }


def main(framework: str, folder: Path) -> None:
    if framework == "names":
        (folder / "names.json").write_text(json.dumps(names_of_mxnet()))
        return
    mx, apply = mxnet_invoke() if framework == "mxnet" else plait_invoke()
    compose = mxnet_composer() if framework == "mxnet" else plait_composer()
    results = folder / framework
    results.mkdir(exist_ok=True)
    journal = results / "done.jsonl"
    seen = set()
    if journal.exists():
        seen = {json.loads(line)["id"] for line in journal.read_text().splitlines()}
    with journal.open("a") as log:
        for case in json.loads((folder / "cases.json").read_text()):
            if case["id"] in seen:
                continue
            print(json.dumps({"id": case["id"], "begin": True}), file=log, flush=True)
            case["attrs"] = attrs_of(case["attrs"])
            with np.load(folder / f"{case['id']}.npz") as held:
                given = [held[f"a{i}"] for i in range(len(held.files))]
            graph = graph_of(mx, compose, case, given)
            try:
                with np.errstate(all="ignore"):
                    found = run(mx, apply, case, given)
                np.savez(results / f"{case['id']}.npz", **found)
                done = {"id": case["id"], "ok": True}
            except Exception as error:
                done = {"id": case["id"], "ok": False, "error": last_line(error)}
                done["clean"] = isinstance(error, mx.base.MXNetError)
            print(json.dumps(done | {"graph": graph}), file=log, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

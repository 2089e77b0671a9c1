"""What a framework makes of an operator as a symbol: its JSON nodes, names, inferred shapes and
dtypes. Runs in either framework, as run.py does."""

from __future__ import annotations

import ast
import ctypes
import json

import numpy as np


def mxnet_composer():
    from mxnet.base import _LIB, c_str, check_call
    from mxnet.symbol.register import _symbol_creator

    def compose(name, inputs, attrs, named):
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
        keys = list(attrs)
        values = [str(attrs[k]) for k in keys]
        arguments = ((), inputs) if named else (inputs, {})
        return _symbol_creator(handle.value, *arguments, keys, values, "f", False)

    return compose


def plait_composer():
    from plait.kernels.record import lookup
    from plait.symbol.symbol import apply

    def compose(name, inputs, attrs, named):
        op = lookup(name)
        if not named:
            return apply(op, name.lower(), inputs, attrs, "f")
        given = [inputs.get(n) for n in op.inputs]
        while given and given[-1] is None:
            given.pop()
        return apply(op, name.lower(), given, attrs, "f")

    return compose


def plain(value):
    """A text as the value it is: frameworks write 1, 1.0, True and (2, 2) in their own ways."""
    text = str(value)
    text = {"true": "True", "false": "False"}.get(text, text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return float(value) if isinstance(value, (int, float)) else value


def described(s) -> dict:
    graph = json.loads(s.tojson())
    nodes = [
        [
            n["op"],
            n["name"],
            [list(i) for i in n["inputs"]],
            {k: plain(v) for k, v in n.get("attrs", {}).items()},
        ]
        for n in graph["nodes"]
    ]
    return {
        "nodes": nodes,
        "arg_nodes": graph["arg_nodes"],
        "heads": graph["heads"],
        "arguments": s.list_arguments(),
        "auxiliary": s.list_auxiliary_states(),
        "outputs": s.list_outputs(),
    }


def dtype_text(dtype):
    return None if dtype is None else np.dtype(dtype).name


def attempt(mx, make):
    """make(), or the framework's refusal."""
    try:
        return make()
    except mx.base.MXNetError:
        return "refused"
    except Exception as error:
        return f"failed: {error!r}"


def graph_of(mx, compose, case, given) -> dict:
    """The symbol on variables x0, x1, ...; and on the first input alone, by name."""
    name, attrs = case["operator"], case["attrs"]
    variables = [mx.sym.Variable(f"x{i}") for i in range(len(given))]
    found = {}

    def whole():
        s = compose(name, variables, attrs, False)
        shapes = {f"x{i}": a.shape for i, a in enumerate(given) if a.ndim and a.size}
        types = {f"x{i}": a.dtype for i, a in enumerate(given)}
        found.update(described(s))
        infer_shape = lambda: [[list(t) for t in g or []] for g in s.infer_shape(**shapes)]
        infer_type = lambda: [[dtype_text(t) for t in g or []] for g in s.infer_type(**types)]
        found["shapes"] = attempt(mx, infer_shape)
        found["types"] = attempt(mx, infer_type)

    found["composes"] = attempt(mx, whole) or "yes"
    if case["first"]:
        by_name = lambda: described(compose(name, {case["first"]: variables[0]}, attrs, True))
        found["by name"] = attempt(mx, by_name)
    return found


def refuses(result) -> bool:
    return isinstance(result, str) and result.startswith(("refused", "failed"))


def graph_differences(ours: dict, theirs: dict, runs: bool) -> list[str]:
    """Where MXNet has an answer and ours is another. runs: MXNet runs the call; of one that it
    refuses later we may refuse the shapes."""
    found = []
    for key in theirs:
        a, b = ours.get(key), theirs[key]
        inferred = key in ("shapes", "types")
        if refuses(b) or a == b or inferred and (not any(b) or refuses(a) and not runs):
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            parts = [k for k in b if a.get(k) != b[k]]
            a, b = ({k: d.get(k) for k in parts} for d in (a, b))
        found.append(f"{key}: plait {a}, MXNet {b}")
    return found

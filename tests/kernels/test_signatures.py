"""Order, names and defaults of every operator's inputs and parameters are MXNet 1.9.1's.

fixtures/signatures.tsv, made from the real one: name, key of a variable number of inputs, inputs,
parameters (`name` where required, else `name=default`).
"""

import inspect
from pathlib import Path

import plait as mx
import pytest
from plait.kernels import ops  # noqa: F401  (fill the registry)
from plait.kernels.params import parse
from plait.kernels.record import REGISTRY, REQUIRED

FILE = Path(__file__).resolve().parents[1] / "fixtures" / "signatures.tsv"
ROWS = [line.split("\t") for line in FILE.read_text().splitlines()]
# internal, and other parameters than in MXNet's own Python
EXCEPT = {"_linspace"}
# MXNet's Python counts the inputs for num_args, but these have more than it says, or a subgraph
EXCEPT |= {"_contrib_quantized_concat", "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"}
KNOWN = [
    pytest.param(*row, id=row[0]) for row in ROWS if row[0] in REGISTRY and row[0] not in EXCEPT
]


@pytest.mark.parametrize("name, key, arrays, parameters", KNOWN)
def test_signature(name, key, arrays, parameters):
    op = REGISTRY[name]
    wanted = arrays.split()
    if key:
        assert op.variadic and op.variadic_key == key
    elif not op.variadic:
        assert list(op.inputs[: len(wanted)]) == wanted
    given = [p.partition("=") for p in parameters.split("; ") if p]
    given = [(n, eq, d) for n, eq, d in given if n != key]
    own = [p for p in op.params if p.name != op.variadic_key or not key]
    assert [p.name for p in own][: len(given)] == [n for n, _, _ in given]
    for p, (n, equals, text) in zip(own, given):
        if text == "?":
            continue
        if not equals:
            assert p.default is REQUIRED, n
            continue
        assert p.default is not REQUIRED, n
        want = None if text in ("None", "[]") else parse(p, text, op.name)
        have = p.default if p.default is None else parse(p, p.default, op.name)
        have = None if have == () else have
        if isinstance(have, float):
            assert have == pytest.approx(want, rel=1e-6), n
        else:
            assert have == want, n


@pytest.mark.parametrize("name, key, arrays, parameters", KNOWN)
def test_functions_take_them_in_this_order(name, key, arrays, parameters):
    names = [p.partition("=")[0] for p in parameters.split("; ") if p]
    unseen = (REGISTRY[name].variadic_key, key, "ctx", "index")
    names = [n for n in names if n not in unseen and n.isidentifier()]
    for module in (mx.nd, mx.sym):
        function = getattr(module, name, None) or getattr(module._internal, name)
        given = [n for n in inspect.signature(function).parameters if n in names]
        assert given == names

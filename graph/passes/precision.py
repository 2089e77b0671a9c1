"""Mixed precision: casts put into a float32 graph as a policy (kernels/precision.py) wants; the
result is untyped."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...kernels import ops  # noqa: F401  (fills the registry)
from ...kernels.precision import Policy
from ...kernels.record import DTYPES, lookup
from ..graph import Node, Value, rewrite, values_of
from ..names import output_name

CAST = lookup("amp_cast")


def reduce_precision(
    outputs: Sequence[Value],
    policy: Policy,
    excluded: Collection[str] = (),
    parameters: Collection[str] = (),
    cast_parameters: bool = False,
) -> list[Value]:
    """The graph with amp_cast nodes.

    excluded: names of nodes that compute in float32. parameters: names of variables whose dtype
        becomes an attribute. cast_parameters: those that are only used in the target dtype have it
        themselves, without a cast.
    """
    dtypes: dict[Value, str] = {}  # the dtype that a value of the new graph has, if it is a float
    casts: dict[tuple[Value, str], Value] = {}

    def in_dtype(v: Value, dtype: str | None) -> Value:
        if dtype is None:
            return v
        made = casts.get((v, dtype))
        if made is None:
            made = casts[v, dtype] = cast(v, dtype)
            dtypes[made] = dtype
        return made

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op is None:
            made = Node(None, {}, (), node.name, None, node.extra)
        else:
            given = [dtypes.get(v, "float32") for v in inputs]
            attrs = {k: v for k, v in node.attrs.items() if k != "train"}
            if node.name in excluded:
                wanted = ["float32" if d == policy.target else None for d in given]
            else:
                wanted = policy.casts(node.op, attrs, given) or [None] * len(given)
            values = [in_dtype(v, d) for v, d in zip(inputs, wanted)]
            made = Node(node.op, attrs, values, node.name, None, node.extra, node.source)
        for v in values_of(made):
            dtypes[v] = _dtype(made, dtypes)
        return values_of(made)

    made = rewrite(outputs, replace)
    return _of_parameters(made, policy.target, parameters, cast_parameters)


def _dtype(node: Node, dtypes: dict[Value, str]) -> str:
    """The dtype of a node's float outputs: its own parameter's, else its first input's."""
    if node.op is None:
        return "float32"
    dtype = node.attrs.get("dtype")
    return dtype or (dtypes[node.inputs[0]] if node.inputs else "float32")


def _of_parameters(outputs, target: str, parameters: Collection[str], cast_parameters: bool):
    """The graph whose parameters say their dtype."""
    uses: dict[Node, set[str]] = {}

    def look(node: Node, inputs: Sequence[Value]):
        for v in node.inputs:
            if v.node.op is None:
                casts = node.op is CAST
                uses.setdefault(v.node, set()).add(node.attrs["dtype"] if casts else "float32")

    rewrite(outputs, look)
    low = {n for n, used in uses.items() if cast_parameters and used == {target}}

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op is None and node.name in parameters:
            dtype = target if node in low else "float32"
            extra = {"__dtype__": str(DTYPES.index(dtype))}
            return [Value(Node(None, {}, (), node.name, None, (node.extra or {}) | extra))]
        if node.op is CAST:
            source = node.inputs[0].node
            if source in low and source.name in parameters:
                return [inputs[0]]
        return None

    return rewrite(outputs, replace)


def cast(v: Value, dtype: str) -> Value:
    """The value in another float dtype, by an untyped node called after it."""
    name = f"{output_name(v)}_amp_cast_{dtype}"
    return Value(Node(CAST, {"dtype": dtype}, (v,), name, None, {"dtype": dtype}))
